/* pointwise_math.c - functions the C library does not have. */
#include "engine/kernels/pointwise_math.h"

#include <math.h>

/* A first guess by Winitzki's formula, then Halley's steps on erf (erfc near the ends, where erf is flat). */
double tap__erfinv(double x)
{
    if (!(fabs(x) <= 1))
        return NAN;
    if (fabs(x) == 1)
        return copysign(INFINITY, x);
    if (x == 0)
        return x;
    const double a = 0.147, pi = 3.14159265358979323846;
    double tail = log1p(-fabs(x)) + log1p(fabs(x)), half = 2 / (pi * a) + tail / 2;
    double y = sqrt(sqrt(half * half - tail / a) - half);
    for (int step = 0; step < 3; step++) {
        double off = fabs(x) < 0.5 ? erf(y) - fabs(x) : (1 - fabs(x)) - erfc(y);
        double by = off / (2 / sqrt(pi) * exp(-y * y));
        y -= by / (1 + y * by);
    }
    return copysign(y, x);
}

/* Reflection for negative arguments, recurrence up to 10, then the asymptotic series. */
double tap__digamma(double x)
{
    const double pi = 3.14159265358979323846;
    if (x == 0)
        return copysign(INFINITY, -x);
    double sum = 0;
    if (x < 0) {
        double whole = trunc(x);
        if (x == whole)
            return NAN;
        sum = -pi / tan(pi * (x - whole));
        x = 1 - x;
    }
    for (; x < 10; x += 1)
        sum -= 1 / x;
    double r = 1 / (x * x);
    double series =
        r * (1.0 / 12 -
             r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * (691.0 / 32760 - r / 12))))));
    return sum + log(x) - 0.5 / x - series;
}
