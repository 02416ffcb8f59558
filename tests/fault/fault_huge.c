/* fault_huge.c - one tensor larger than 4 GiB: fault_huge DIR GIB. Zero pages with marks at both ends and around every
 * gibibyte, so that it needs little memory; read back and compared after closing. */
#include "tensortap/tensortap.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t mark(uint64_t at)
{
    return at * 0x9E3779B97F4A7C15u + 1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t bytes = strtoull(argv[2], NULL, 0) << 30, count = bytes / 8, step = (1u << 30) / 8;
    uint64_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        return 2;
    for (uint64_t at = 0; at < count; at += step)
        data[at] = data[at + step - 1] = mark(at);
    tap_options options;
    tap_options_init(&options);
    options.dir = argv[1];
    tap_recorder *rec;
    tap_error err;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK) {
        puts(err.message);
        return 3;
    }
    int64_t shape[2] = {(int64_t)(count / 1024), 1024};
    tap_tensor tensor = {data, TAP_U64, 2, shape, NULL};
    tap_status status = tap_save(rec, "huge", &tensor, NULL);
    float one = 1;
    tap_save(rec, "after", &(tap_tensor){&one, TAP_F32, 0, NULL, NULL}, NULL);
    tap_status closed = tap_recorder_close(rec, &err);
    printf("save %s close %s\n", tap_status_name(status), tap_status_name(closed));
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record record;
    tap_record_init(&record);
    tap_mapping mapping;
    tap_mapping_init(&mapping);
    tap_query_init(&query);
    query.name = "huge";
    if (tap_run_open(argv[1], &run, &err) || tap_run_query(run, &query, &cursor, &err) ||
        tap_cursor_next(cursor, &record, &err) || tap_record_map(run, &record, &mapping, &err)) {
        puts(err.message);
        return 1;
    }
    const uint64_t *back = mapping.tensor.data;
    uint64_t wrong = record.payload_bytes != bytes;
    for (uint64_t at = 0; at < count; at += step)
        wrong += back[at] != mark(at) || back[at + step - 1] != mark(at) || back[at + 1] != 0;
    printf("bytes %llu wrong %llu\n", (unsigned long long)record.payload_bytes, (unsigned long long)wrong);
    return wrong != 0;
}
