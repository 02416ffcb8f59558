/* chart.h - small drawings out of block characters, or ASCII where those cannot be shown. */
#ifndef TAP_CLI_CHART_H
#define TAP_CLI_CHART_H

#include "tensortap/tensortap.h"

#define SPARK_MAX 24
/* One character for each value, the range of the finite ones from lowest to highest; "!" for one that is not. More
 * values than SPARK_MAX are averaged in groups. dst has SPARK_MAX * 3 + 1 bytes. */
void chart_spark(char *dst, const double *values, size_t count);
/* Bars in a few lines on stdout, with the range below. */
void chart_histogram(const uint64_t *counts, int bins, double low, double high);

#endif
