/* pointwise_math.c - functions the C library does not have. */
#include "engine/kernels/pointwise_math.h"

#include <math.h>
#include <stdbool.h>

/* A first guess, good to seven digits up to 1 - 1e-7 and by Winitzki's formula past that, then Halley's steps on erf
 * (erfc near the ends, where erf is flat). */
double tap__erfinv(double x)
{
    if (!(fabs(x) <= 1))
        return NAN;
    if (fabs(x) == 1)
        return copysign(INFINITY, x);
    if (x == 0)
        return x;
    static const double NEAR[] = {2.260597770e-08, 3.422247090e-07, -3.454779514e-06, -4.380346715e-06, 2.183129798e-04,
                                  -1.253758885e-03, -4.177346517e-03, 2.466407663e-01, 1.501409351e+00};
    static const double FAR[] = {-1.293368044e-04, 4.428598572e-05, 1.260280387e-03, -3.613809721e-03, 5.776520539e-03,
                                 -7.640052045e-03, 9.433599879e-03, 1.001675347e+00, 2.832977045e+00};
    const double a = 0.147, pi = 3.14159265358979323846;
    double tail = log1p(-fabs(x)) + log1p(fabs(x)), half = 2 / (pi * a) + tail / 2;
    bool near = tail > -5, guessed = tail > -16.8;
    double at = near ? -tail - 2.5 : sqrt(-tail) - 3, y = 0;
    for (int k = 0; k < 9; k++)
        y = y * at + (near ? NEAR : FAR)[k];
    y = guessed ? y * fabs(x) : sqrt(sqrt(half * half - tail / a) - half);
    for (int step = 0; step < (guessed ? 1 : 3); step++) {
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
