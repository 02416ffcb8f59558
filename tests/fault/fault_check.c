/* fault_check.c - is every save of fault_stress that returned in the recording, whole and equal?
 *     fault_check DIR COUNTERS seed=N ring=N [lossy=1 | dead=1 | last=1]
 * lossy: the disk was full, so a save may lack its bytes, or be missing when verify counts it; none may be wrong.
 * dead: the disk took nothing more at all, not even news of the loss: verify must say that the recording has no end.
 * last: only the last steps were kept, so of every thread the first saves may be missing, and none after one that is there.
 * Exit 0: nothing lost. 1: says what. */
#include "fault/pattern.h"
#include "tensortap/tensortap.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ABSENT, WHOLE, PARTIAL, TORN };

static uint64_t seed = 1, ring = 4 << 20, problems;
static bool lossy, dead, last, unfinished;
static uint8_t *seen[PATTERN_THREADS];
static uint64_t started[PATTERN_THREADS], returned[PATTERN_THREADS];

static void complain(const char *what, const char *name)
{
    if (problems++ < 10)
        printf("%s: %s\n", name, what);
}

static bool equal(const tap_tensor *tensor, uint64_t thread, uint64_t index)
{
    size_t n = pattern_count(seed, thread, index, ring);
    if (tensor->ndim != 1 || tensor->shape[0] != (int64_t)n || tensor->dtype != TAP_U32)
        return false;
    const uint32_t *data = tensor->data;
    for (size_t k = 0; k < n; k++)
        if (data[k] != pattern_value(seed, thread, index, k))
            return false;
    return true;
}

static void check_record(tap_run *run, const tap_record *record)
{
    unsigned long long thread, index;
    if (sscanf(record->name, "t%llu/%llu", &thread, &index) != 2 || thread >= PATTERN_THREADS ||
        index >= started[thread] + 1) {
        complain("never saved", record->name);
        return;
    }
    if (record->state == TAP_RECORD_TORN) {
        seen[thread][index] = TORN;
        return;
    }
    if (seen[thread][index] != ABSENT)
        complain("twice in the recording", record->name);
    size_t n = pattern_count(seed, thread, index, ring);
    if (record->payload_bytes == 0 && n) {
        seen[thread][index] = PARTIAL;
        return;
    }
    tap_mapping mapping;
    tap_error err;
    if (tap_record_map(run, record, &mapping, &err) != TAP_OK) {
        complain(err.message, record->name);
        return;
    }
    if (equal(&mapping.tensor, thread, index))
        seen[thread][index] = WHOLE;
    else
        complain("has other content than was saved", record->name);
    if (record->hash != tap_hash_bytes(mapping.tensor.data, n * 4))
        complain("hash does not match", record->name);
    tap_mapping_release(&mapping);
}

typedef struct verify_sum {
    uint64_t named;
} verify_sum;

static void on_problem(void *user, const tap_problem *problem)
{
    verify_sum *sum = user;
    unfinished |= problem->kind == TAP_PROBLEM_UNFINISHED;
    if (problem->kind == TAP_PROBLEM_CORRUPT || problem->kind == TAP_PROBLEM_MISSING ||
        (problem->kind == TAP_PROBLEM_UNFINISHED && !dead))
        complain(problem->reason, problem->file);
    if (tap_problem_is_loss(problem->kind))
        sum->named += problem->count;
}

static void read_counters(const char *path)
{
    int fd = open(path, O_RDONLY);
    pattern_counters *counters = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *counters, PROT_READ, MAP_SHARED, fd, 0);
    if (counters == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    for (int t = 0; t < PATTERN_THREADS; t++) {
        started[t] = atomic_load(&counters->thread[t].started);
        returned[t] = atomic_load(&counters->thread[t].returned);
        seen[t] = calloc(started[t] + 2, 1);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    for (int i = 3; i < argc; i++) {
        sscanf(argv[i], "seed=%lu", &seed);
        sscanf(argv[i], "ring=%lu", &ring);
        dead |= strcmp(argv[i], "dead=1") == 0;
        last |= strcmp(argv[i], "last=1") == 0;
        lossy |= dead || strcmp(argv[i], "lossy=1") == 0;
    }
    read_counters(argv[2]);
    tap_error err;
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record record;
    tap_query_init(&query);
    query.incomplete = true;
    if (tap_run_open(argv[1], &run, &err) != TAP_OK || tap_run_query(run, &query, &cursor, &err) != TAP_OK) {
        printf("%s\n", err.message);
        return 2;
    }
    tap_status status;
    while ((status = tap_cursor_next(cursor, &record, &err)) == TAP_OK)
        check_record(run, &record);
    if (status != TAP_END)
        complain(err.message, "cursor");
    tap_cursor_close(cursor);

    verify_sum sum = {0};
    tap_verify_options verify;
    tap_verify_result result;
    tap_verify_options_init(&verify);
    verify.on_problem = on_problem;
    verify.user = &sum;
    status = tap_run_verify(run, &verify, &result, &err);
    if (status != TAP_OK && status != TAP_E_LOST)
        complain(err.message, "verify");

    uint64_t whole = 0, partial = 0, absent = 0, torn = 0, saved = 0;
    for (int t = 0; t < PATTERN_THREADS; t++) {
        uint64_t first = 0;
        while (last && first < returned[t] && seen[t][first] == ABSENT)
            first++;
        for (uint64_t i = first; i < returned[t]; i++) {
            char name[64];
            snprintf(name, sizeof name, "t%d/%lu", t, i);
            uint8_t state = seen[t][i];
            whole += state == WHOLE;
            partial += state == PARTIAL;
            absent += state == ABSENT;
            torn += state == TORN;
            saved++;
            if (state != WHOLE && !lossy)
                complain(state == TORN ? "returned, but is torn" : state == PARTIAL ? "its bytes are gone" : "is lost",
                         name);
        }
    }
    if (lossy && !unfinished && partial + absent + torn > sum.named + result.not_named) {
        printf("%lu saves lack something, verify lists only %lu + %lu\n", partial + absent + torn, sum.named,
               result.not_named);
        problems++;
    }
    if (lossy && partial + absent + torn && status != TAP_E_LOST) {
        printf("verify says nothing was lost\n");
        problems++;
    }
    printf("returned %lu: whole %lu, statistics only %lu, missing %lu, torn %lu; problems %lu\n", saved, whole, partial,
           absent, torn, problems);
    tap_run_close(run);
    return problems ? 1 : 0;
}
