/* spans.c - spans are as long as the data says, not as many as there are threads, and what they found is put together in
 * their order: the result does not depend on the number of threads. */
#include "compare/spans.h"

#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>
#include <string.h>

enum { SPAN_BYTES = 8 << 20, CHUNK_BYTES = 256 << 10, MAX_THREADS = 64, WORTH_A_THREAD = 1 << 20 };

typedef struct tap_span {
    tap_spanned *pair;
    int64_t first, count; /* elements */
    bool look;
    tap_status status;
    tap_error err;
    tap_difference_pass pass;
    int64_t first_bit;
    uint64_t other_bits;
    unsigned char element[2][16];
    tap_beyond beyond;
} tap_span;

typedef struct work {
    tap_span **spans;
    size_t count, next;
    void (*run)(tap_span *span, char *room[2], tap_sidefile files[2]);
    bool out_of_memory;
} work;

/* ---------------------------------------------------------------------------------------------------------- spans */

/* Elements in a piece of at most `bytes`, a multiple of what kernels take at once. */
static int64_t elements_in(const tap_spanned *pair, int64_t bytes)
{
    size_t element = pair->side[0]->element > pair->side[1]->element ? pair->side[0]->element : pair->side[1]->element;
    return bytes / (int64_t)element / TAP_PAIR_BLOCK * TAP_PAIR_BLOCK;
}

static void bits_compare(tap_span *span, char *const room[2], int64_t at, int64_t count)
{
    const tap_sidebytes *a = span->pair->side[0];
    size_t size = a->element;
    if (a->dtype != span->pair->side[1]->dtype || memcmp(room[0], room[1], (size_t)count * size) == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        const char *x = room[0] + (size_t)i * size, *y = room[1] + (size_t)i * size;
        if (memcmp(x, y, size) == 0)
            continue;
        if (span->first_bit < 0) {
            span->first_bit = at + i;
            memcpy(span->element[0], x, size);
            memcpy(span->element[1], y, size);
        }
        span->other_bits++;
    }
}

static tap_status chunk_read(tap_span *span, char *room[2], tap_sidefile files[2], int64_t at, int64_t count)
{
    for (int side = 0; side < 2; side++)
        TAP_TRY(tap__sidebytes_read(span->pair->side[side], &files[side], at, count, room[side], &span->err));
    return TAP_OK;
}

static void span_compare(tap_span *span, char *room[2], tap_sidefile files[2])
{
    const tap_spanned *pair = span->pair;
    int64_t chunk = elements_in(pair, CHUNK_BYTES);
    span->first_bit = -1;
    span->status = tap__difference_begin(&span->pass, pair->side[0]->dtype, pair->side[1]->dtype, &span->err);
    for (int64_t done = 0; done < span->count && span->status == TAP_OK; done += chunk) {
        int64_t take = span->count - done < chunk ? span->count - done : chunk;
        span->status = chunk_read(span, room, files, span->first + done, take);
        if (span->status != TAP_OK)
            return;
        tap__difference_next(&span->pass, room[0], room[1], take);
        if (pair->exact)
            bits_compare(span, room, span->first + done, take);
    }
}

static void span_look(tap_span *span, char *room[2], tap_sidefile files[2])
{
    int64_t chunk = elements_in(span->pair, CHUNK_BYTES);
    span->beyond = span->pair->beyond;
    for (int64_t done = 0; done < span->count; done += chunk) {
        int64_t take = span->count - done < chunk ? span->count - done : chunk;
        span->status = chunk_read(span, room, files, span->first + done, take);
        if (span->status != TAP_OK)
            return;
        tap__beyond_next(&span->beyond, room[0], room[1], take);
    }
}

/* -------------------------------------------------------------------------------------------------------- threads */

static void *worker(void *argument)
{
    work *w = argument;
    char *room[2] = {tap__alloc(CHUNK_BYTES), tap__alloc(CHUNK_BYTES)};
    tap_sidefile files[2] = {{-1, NULL}, {-1, NULL}};
    if (!room[0] || !room[1])
        __atomic_store_n(&w->out_of_memory, true, __ATOMIC_RELAXED);
    else
        for (size_t i; (i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->count;)
            w->run(w->spans[i], room, files);
    for (int side = 0; side < 2; side++) {
        tap__sidefile_close(&files[side]);
        tap__free(room[side]);
    }
    return NULL;
}

/* This thread works too; a thread that cannot be started is one less. */
static tap_status work_do(work *w, uint64_t bytes, int threads, tap_error *err)
{
    pthread_t others[MAX_THREADS];
    int started = 0;
    uint64_t worth = bytes / WORTH_A_THREAD;
    while (started + 1 < threads && started < MAX_THREADS && (uint64_t)started < worth &&
           pthread_create(&others[started], NULL, worker, w) == 0)
        started++;
    worker(w);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    return w->out_of_memory ? tap_fail_nomem(err) : TAP_OK;
}

static tap_status spans_run(tap_spanned *const *pairs, size_t count, int threads, bool look, tap_error *err)
{
    work w = {.run = look ? span_look : span_compare};
    uint64_t bytes = 0;
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += look && !pairs[i]->look ? 0 : pairs[i]->span_count;
    w.spans = tap__calloc(total + 1, sizeof *w.spans);
    if (!w.spans)
        return tap_fail_nomem(err);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < pairs[i]->span_count && (!look || pairs[i]->look); k++) {
            w.spans[w.count++] = &pairs[i]->spans[k];
            bytes += (uint64_t)pairs[i]->spans[k].count * pairs[i]->side[0]->element;
        }
    tap_status status = work_do(&w, bytes, threads, err);
    tap__free(w.spans);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- pairs */

static tap_status spans_make(tap_spanned *pair, tap_error *err)
{
    int64_t count = pair->side[0]->count, span = elements_in(pair, SPAN_BYTES);
    if (pair->side[0]->in_order || pair->side[1]->in_order)
        span = count > 0 ? count : 1;
    pair->span_count = (size_t)((count + span - 1) / span);
    pair->spans = tap__calloc(pair->span_count + 1, sizeof *pair->spans);
    if (!pair->spans)
        return tap_fail_nomem(err);
    for (size_t i = 0; i < pair->span_count; i++) {
        int64_t first = (int64_t)i * span;
        pair->spans[i].pair = pair;
        pair->spans[i].first = first;
        pair->spans[i].count = count - first < span ? count - first : span;
    }
    return TAP_OK;
}

/* The first span that failed speaks for the pair. */
static bool spans_failed(tap_spanned *pair)
{
    for (size_t i = 0; i < pair->span_count && pair->status == TAP_OK; i++)
        if (pair->spans[i].status != TAP_OK) {
            pair->status = pair->spans[i].status;
            pair->err = pair->spans[i].err;
        }
    return pair->status != TAP_OK;
}

static void compared_join(tap_spanned *pair)
{
    tap_difference_pass whole;
    pair->first_bit = -1;
    if (spans_failed(pair))
        return;
    pair->status = tap__difference_begin(&whole, pair->side[0]->dtype, pair->side[1]->dtype, &pair->err);
    for (size_t i = 0; i < pair->span_count && pair->status == TAP_OK; i++) {
        const tap_span *span = &pair->spans[i];
        tap__difference_join(&whole, &span->pass);
        pair->other_bits += span->other_bits;
        if (pair->first_bit < 0 && span->first_bit >= 0) {
            pair->first_bit = span->first_bit;
            memcpy(pair->element, span->element, sizeof pair->element);
        }
    }
    tap_difference_init(&pair->difference);
    if (pair->status == TAP_OK)
        tap__difference_end(&whole, &pair->difference);
}

/* A strided side was read to its end by the first look: it starts anew. */
static tap_status in_order_rewind(tap_spanned *pair)
{
    for (int side = 0; side < 2; side++)
        if (pair->side[side]->in_order)
            TAP_TRY(tap__walk_begin(&pair->side[side]->walk, &pair->side[side]->mapping.tensor, &pair->err));
    return TAP_OK;
}

tap_status tap__spans_compare(tap_spanned *const *pairs, size_t count, int threads, tap_error *err)
{
    for (size_t i = 0; i < count; i++)
        TAP_TRY(spans_make(pairs[i], err));
    TAP_TRY(spans_run(pairs, count, threads, false, err));
    for (size_t i = 0; i < count; i++)
        compared_join(pairs[i]);
    return TAP_OK;
}

tap_status tap__spans_look(tap_spanned *const *pairs, size_t count, int threads, tap_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (pairs[i]->look)
            TAP_TRY(in_order_rewind(pairs[i]));
    TAP_TRY(spans_run(pairs, count, threads, true, err));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < pairs[i]->span_count && pairs[i]->look && !spans_failed(pairs[i]); k++)
            tap__beyond_join(&pairs[i]->beyond, &pairs[i]->spans[k].beyond);
    return TAP_OK;
}
