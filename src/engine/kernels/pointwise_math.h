/* pointwise_math.h - functions the C library does not have, in double precision. */
#ifndef TAP_ENGINE_POINTWISE_MATH_H
#define TAP_ENGINE_POINTWISE_MATH_H

double tap__erfinv(double x);
double tap__digamma(double x);

#endif
