/* stats.c - what follows from statistics alone. */
#include "tensortap/tensortap.h"

#include <math.h>

double tap_stats_ieee_mean(const tap_stats *stats)
{
    if (!stats)
        return (double)NAN;
    if (stats->nan || stats->count == 0 || (stats->pos_inf && stats->neg_inf))
        return (double)NAN;
    if (stats->pos_inf || stats->neg_inf)
        return stats->pos_inf ? (double)INFINITY : -(double)INFINITY;
    return stats->mean;
}

double tap_stats_ieee_norm(const tap_stats *stats)
{
    if (!stats)
        return (double)NAN;
    if (stats->nan)
        return (double)NAN;
    return stats->pos_inf || stats->neg_inf ? (double)INFINITY : stats->norm;
}
