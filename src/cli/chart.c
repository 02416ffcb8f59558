/* chart.c - sparklines and histograms. */
#include "chart.h"

#include "records.h"
#include "term.h"

#include <math.h>
#include <string.h>

static const char *level_text(int level) /* 0..8 */
{
    static const char *const BLOCKS[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ASCII[] = {" ", ".", ".", ":", ":", "|", "|", "#", "#"};
    return term_utf8() ? BLOCKS[level] : ASCII[level];
}

/* The mean of a group; NaN when one value in it is not finite, so that a single bad step is seen. */
static double group_value(const double *values, size_t from, size_t to)
{
    double sum = 0;
    for (size_t i = from; i < to; i++)
        sum += values[i];
    return isfinite(sum) ? sum / (double)(to - from) : NAN;
}

void chart_spark(char *dst, const double *values, size_t count)
{
    double groups[SPARK_MAX], low = INFINITY, high = -INFINITY;
    size_t cells = count < SPARK_MAX ? count : SPARK_MAX;
    for (size_t i = 0; i < cells; i++) {
        groups[i] = group_value(values, i * count / cells, (i + 1) * count / cells);
        low = groups[i] < low ? groups[i] : low;
        high = groups[i] > high ? groups[i] : high;
    }
    for (size_t i = 0; i < cells; i++) {
        int level = high > low ? 1 + (int)((groups[i] - low) / (high - low) * 7.0 + 0.5) : 4;
        const char *mark = isnan(groups[i]) ? "!" : level_text(level);
        size_t len = strlen(mark);
        memcpy(dst, mark, len);
        dst += len;
    }
    *dst = 0;
}

void chart_histogram(const uint64_t *counts, int bins, double low, double high)
{
    enum { LINES = 4, COLUMNS = 48 };
    int thick = bins < COLUMNS ? COLUMNS / bins : 1;
    uint64_t most = 0;
    for (int i = 0; i < bins; i++)
        most = counts[i] > most ? counts[i] : most;
    if (!most)
        return;
    for (int line = LINES - 1; line >= 0; line--) {
        int owed = 0;
        fputs("  ", stdout);
        for (int i = 0; i < bins; i++) {
            int eighths = (int)ceil((double)counts[i] / (double)most * LINES * 8) - line * 8;
            int level = eighths < 0 ? 0 : eighths > 8 ? 8 : eighths;
            if (level == 0) {
                owed += thick;
                continue;
            }
            printf("%*s", owed, "");
            for (int k = 0; k < thick; k++)
                fputs(level_text(level), stdout);
            owed = 0;
        }
        if (line == LINES - 1)
            printf("%*s  %llu", owed, "", (unsigned long long)most);
        fputc('\n', stdout);
    }
    char left[TEXT_MAX], right[TEXT_MAX];
    real_text(left, low);
    real_text(right, high);
    int gap = bins * thick - (int)strlen(left) - (int)strlen(right);
    printf("  %s%*s%s\n", left, gap > 1 ? gap : 1, "", right);
}
