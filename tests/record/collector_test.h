/* collector_test.h - for tests of msprobe's collectors: one collector of process 5 in a directory of its own, and entries
 * given to it. Included by one .c file each. */
#ifndef TAP_TESTS_COLLECTOR_TEST_H
#define TAP_TESTS_COLLECTOR_TEST_H

#include "record/layout_test.h"

#include "record/layouts/msprobe.h"

typedef tap_status (*open_fn)(const tap_layout_options *options, tap_collector **out, tap_error *err);

typedef struct fixture {
    char *dir;
    tap_layout_options options;
    tap_collector *collector;
    tap_error err;
} fixture;

static void start_with(open_fn open_collector, fixture *f)
{
    if (!f->dir)
        f->dir = scratch_make();
    f->options.dir = opened(f->dir);
    f->options.pid = 5;
    f->options.keep = f->options.keep ? f->options.keep : TAP_KEEP_STATS;
    assert_int_equal(open_collector(&f->options, &f->collector, &f->err), TAP_OK);
}

static void stop(fixture *f)
{
    tap__msprobe_collect_close(f->collector);
    scratch_drop(f->dir);
}

static tap_status take(fixture *f, test_entry entry)
{
    const void *payload;
    tap_entry *made = make_entry(&entry, &payload);
    tap_status status = tap__msprobe_collect(f->collector, made, payload, &f->err);
    free(made);
    return status;
}

static void flush(fixture *f, uint64_t now, bool force)
{
    if (tap__msprobe_collect_flush(f->collector, now, force, &f->err) != TAP_OK)
        fail_msg("%s", f->err.message);
}

#endif
