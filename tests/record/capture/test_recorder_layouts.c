/* test_recorder_layouts.c - the layouts of other tools through the recorder: the file is in place when the save
 * returns, names are the contracts', and what is written reads back as a recording. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "record/scratch.h"
#include "tensortap/tensortap.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static tap_recorder *open_layout(const char *dir, const char *layout, bool asynchronous, const char *writer)
{
    tap_options options;
    tap_options_init(&options);
    options.dir = dir;
    options.layout = layout;
    options.writer = writer;
    options.ring_bytes = 1 << 20;
    options.asynchronous = asynchronous;
    options.distributed = true;
    options.rank = 1;
    options.world_size = 2;
    options.device_index = 3;
    tap_recorder *rec;
    tap_error err;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
    return rec;
}

static void must_close(tap_recorder *rec)
{
    tap_error err;
    if (tap_recorder_close(rec, &err) != TAP_OK)
        fail_msg("%s", err.message);
}

static float data[4] = {1, -2, 3, 0.5f};
static int64_t shape[2] = {2, 2};
static const tap_tensor tensor = {data, TAP_F32, 2, shape, NULL};

/* The file holds the tensor, has mode 0640, and nothing temporary lies beside it. */
static void expect_file(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    tap_file *file;
    tap_file_entry entry;
    tap_file_entry_init(&entry);
    tap_error err;
    struct stat st;
    if (tap_file_open(path, &file, &err) != TAP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tap_file_get(file, 0, &entry, &err), TAP_OK);
    assert_int_equal(entry.tensor.dtype, TAP_F32);
    assert_int_equal(entry.tensor.ndim, 2);
    assert_memory_equal(entry.tensor.data, data, sizeof data);
    tap_file_close(file);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
}

static void files_are_in_place_on_return(void **state)
{
    (void)state;
    static const struct {
        const char *layout, *name, *first, *second;
        tap_save_info info;
    } CASES[] = {
        {"torch_npu", "d/x.pt", "d/x_device_3.pt", "d/x_device_3_1.pt", TAP_SAVE_INFO()},
        {"torch_npu", "y", "y_device_3.pt", "y_device_3_1.pt", TAP_SAVE_INFO()},
        {"troubleshooter", "sub/dense", "sub/0_dense_backward_rank1.npy", "sub/1_dense_backward_rank1.npy",
         TAP_SAVE_INFO(.suffix = "backward")},
        {"mindspore", "x", "step0/rank1/x_float32_0.npy", "step0/rank1/x_float32_1.npy", TAP_SAVE_INFO()},
        {"mindspore", "z", "step0/rank1/z_grad_float32_0.npy", "step0/rank1/z_grad_float32_1.npy",
         TAP_SAVE_INFO(.kind = TAP_KIND_GRAD)},
        {"torchair", "add", "worldsize2_global_rank1/graph_1/0/add_1-aten.add.Tensor.INPUT.0.20251017071211190258.npy",
         NULL,
         TAP_SAVE_INFO(.kind = TAP_KIND_INPUT, .node = "add_1-aten.add.Tensor", .argument = "0", .graph_id = 1,
          .stamp_us = 1760685131190258)},
        {"msprobe", "x2", "step0/rank1/dump_tensor_data/x2.0.debug.pt", "step0/rank1/dump_tensor_data/x2.1.debug.pt",
         TAP_SAVE_INFO()},
        {"msprobe", "x2", "step0/rank1/dump_tensor_data/x2_grad.0.debug.pt",
         "step0/rank1/dump_tensor_data/x2_grad.1.debug.pt", TAP_SAVE_INFO(.kind = TAP_KIND_GRAD)},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
            char *dir = scratch_make();
            tap_recorder *rec = open_layout(dir, CASES[i].layout, asynchronous, "thread");
            assert_int_equal(tap_save(rec, CASES[i].name, &tensor, &CASES[i].info), TAP_OK);
            if (asynchronous)
                assert_int_equal(tap_recorder_flush(rec, -1, NULL), TAP_OK);
            expect_file(dir, CASES[i].first);
            if (CASES[i].second) {
                assert_int_equal(tap_save(rec, CASES[i].name, &tensor, &CASES[i].info), TAP_OK);
                if (asynchronous)
                    assert_int_equal(tap_recorder_flush(rec, -1, NULL), TAP_OK);
                expect_file(dir, CASES[i].second);
            }
            must_close(rec);
            char *text = scratch_list(dir, NULL, false);
            assert_non_null(strstr(text, "float32[2,2] 0"));
            free(text);
            scratch_drop(dir);
        }
    }
}

static void a_list_of_tensors_is_one_file(void **state)
{
    (void)state;
    char *dir = scratch_make(), path[600];
    tap_recorder *rec = open_layout(dir, "torch_npu", false, "thread");
    tap_value items[2] = {{.type = TAP_VALUE_TENSOR, .tensor = tensor}, {.type = TAP_VALUE_TENSOR, .tensor = tensor}};
    tap_value list = {.type = TAP_VALUE_LIST, .items = items, .len = 2};
    assert_int_equal(tap_save_value(rec, "both.bin", &list, NULL), TAP_OK);
    snprintf(path, sizeof path, "%s/both_device_3.bin", dir);
    tap_file *file;
    assert_int_equal(tap_file_open(path, &file, NULL), TAP_OK);
    assert_int_equal(tap_file_count(file), 2);
    tap_file_close(file);
    must_close(rec);
    scratch_drop(dir);
}

static char *read_text(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *in = fopen(path, "r");
    if (!in)
        return strdup("");
    char *text = NULL;
    size_t cap = 0;
    ssize_t len = getdelim(&text, &cap, 0, in);
    fclose(in);
    return len < 0 ? strdup("") : text;
}

static void debug_json_survives_its_writer(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_recorder *rec = open_layout(dir, "msprobe", false, TAP_COMMAND);
    assert_int_equal(tap_save(rec, "before", &tensor, NULL), TAP_OK);
    tap_counts counts;
    tap_counts_init(&counts);
    tap_recorder_counts(rec, &counts);
    assert_true(counts.writer_pid > 1);
    kill(counts.writer_pid, SIGKILL);
    assert_int_equal(tap_save(rec, "after", &tensor, NULL), TAP_OK);
    must_close(rec);
    char *text = read_text(dir, "step0/rank1/debug.json");
    assert_non_null(strstr(text, "\"before.0.debug\""));
    assert_non_null(strstr(text, "\"after.0.debug\""));
    free(text);
    scratch_drop(dir);
}

/* The writer outlives a job that was killed: waiting is for the writer. */
static void waiting_is_for_the_writer(void **state)
{
    (void)state;
    char *dir = scratch_make();
    int ends[2];
    pid_t writer, job;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    if ((job = fork()) == 0) {
        tap_recorder *rec = open_layout(dir, "msprobe", false, TAP_COMMAND);
        tap_counts counts;
        tap_counts_init(&counts);
        tap_recorder_counts(rec, &counts);
        if (counts.writer_pid <= 0) /* a thread, or none: this would stop us all */
            _exit(1);
        kill(counts.writer_pid, SIGSTOP);
        bool told = write(ends[1], &counts.writer_pid, sizeof counts.writer_pid) == sizeof counts.writer_pid;
        _exit(told && tap_save(rec, "x", &tensor, NULL) == TAP_OK ? raise(SIGKILL) : 1);
    }
    int status;
    tap_error err;
    assert_int_equal(read(ends[0], &writer, sizeof writer), sizeof writer);
    assert_int_equal(waitpid(job, &status, 0), job);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(tap_run_wait(dir, 30, &err), TAP_E_TIMEOUT);
    kill(writer, SIGCONT);
    assert_int_equal(tap_run_wait(dir, 20000, &err), TAP_OK);
    char *text = read_text(dir, "step0/rank1/debug.json");
    assert_non_null(strstr(text, "\"x.0.debug\""));
    free(text);
    close(ends[0]);
    close(ends[1]);
    scratch_drop(dir);
}

static void debug_json_is_complete_after_a_flush(void **state)
{
    (void)state;
    char *dir = scratch_make();
    tap_recorder *rec = open_layout(dir, "msprobe", false, "thread");
    tap_value items[2] = {{.type = TAP_VALUE_TENSOR, .tensor = tensor, .requires_grad = true},
                          {.type = TAP_VALUE_STR, .bytes = "text", .len = 4}};
    const char *const keys[2] = {"a", "b"};
    tap_value dict = {.type = TAP_VALUE_DICT, .items = items, .keys = keys, .len = 2};
    assert_int_equal(tap_save_value(rec, "st", &dict, NULL), TAP_OK);
    tap_save_info slot = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .flags = TAP_SAVE_SLOT, .has_call = true);
    assert_int_equal(tap_save(rec, "x", &tensor, NULL), TAP_OK);
    assert_int_equal(tap_save(rec, "x", NULL, &slot), TAP_OK);
    assert_int_equal(tap_recorder_flush(rec, -1, NULL), TAP_OK);
    char *text = read_text(dir, "step0/rank1/debug.json");
    assert_non_null(strstr(text, "\"st.0.debug\": {\n   \"a\": {\n    \"type\": \"torch.Tensor\","));
    assert_non_null(strstr(text, "\"value\": \"text\""));
    assert_non_null(strstr(text, "\"x_grad.0.debug\": null"));
    free(text);
    tap_save_info grad = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .has_call = true, .has_step = true);
    assert_int_equal(tap_step(rec), TAP_OK);
    assert_int_equal(tap_save(rec, "x", &tensor, &grad), TAP_OK); /* after step(): still its forward's step */
    must_close(rec);
    text = read_text(dir, "step0/rank1/debug.json");
    assert_null(strstr(text, "\"x_grad.0.debug\": null"));
    assert_non_null(strstr(text, "\"data_name\": \"x_grad.0.debug.pt\""));
    free(text);
    scratch_drop(dir);
}

static void a_file_that_cannot_be_written_is_listed(void **state)
{
    (void)state;
    char *dir = scratch_make(), path[600];
    tap_recorder *rec = open_layout(dir, "troubleshooter", false, "thread");
    assert_int_equal(tap_save(rec, "good", &tensor, NULL), TAP_OK);
    snprintf(path, sizeof path, "%s/file", dir);
    fclose(fopen(path, "w"));
    assert_int_not_equal(tap_save(rec, "file/below", &tensor, NULL), TAP_OK); /* "file" is no directory */
    tap_error err;
    assert_int_equal(tap_recorder_close(rec, &err), TAP_E_LOST);
    tap_run *run;
    tap_verify_result result;
    tap_verify_result_init(&result);
    assert_int_equal(tap_run_open(dir, &run, &err), TAP_OK);
    assert_int_equal(tap_run_verify(run, NULL, &result, &err), TAP_E_LOST);
    assert_int_equal(result.lost, 1);
    tap_run_close(run);
    scratch_drop(dir);
}

static struct {
    int count;
    char text[4][400];
} said;

static void keep_what_is_said(void *user, tap_log_level level, const char *message)
{
    (void)user, (void)level;
    if (said.count < 4)
        snprintf(said.text[said.count], sizeof said.text[0], "%s", message);
    said.count++;
}

static void note_reason(void *user, const tap_problem *problem)
{
    snprintf(user, 200, "%s %s %d: %s", tap_problem_name(problem->kind), problem->name, (int)problem->count, problem->reason);
}

/* One warning that says why, and none that blames the disk. */
static void a_name_that_is_refused_is_told_once(void **state)
{
    (void)state;
    static const struct {
        const char *layout, *name, *why;
    } CASES[] = {{"torch_npu", "w0.i0", "the suffix must be .pt or .bin"}, {"torch_npu", "a/", "names a directory"},
                 {"troubleshooter", "../x", "outside"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char *dir = scratch_make(), reason[200] = "";
        tap_recorder *rec = open_layout(dir, CASES[i].layout, false, "thread");
        said.count = 0;
        tap_log_set(keep_what_is_said, NULL);
        for (int k = 0; k < 3; k++)
            assert_int_equal(tap_save(rec, CASES[i].name, &tensor, NULL), TAP_E_INVALID);
        assert_int_equal(tap_save(rec, "good", &tensor, NULL), TAP_OK);
        assert_int_equal(tap_recorder_close(rec, NULL), TAP_E_LOST);
        tap_log_set(NULL, NULL);
        assert_int_equal(said.count, 1);
        assert_non_null(strstr(said.text[0], CASES[i].why));
        assert_null(strstr(said.text[0], "disk"));
        tap_run *run;
        tap_verify_options options;
        tap_verify_options_init(&options);
        options.on_problem = note_reason;
        options.user = reason;
        assert_int_equal(tap_run_open(dir, &run, NULL), TAP_OK);
        assert_int_equal(tap_run_verify(run, &options, NULL, NULL), TAP_E_LOST);
        assert_non_null(strstr(reason, " 3: the layout has no file for a name like this"));
        tap_run_close(run);
        scratch_drop(dir);
    }
}

static int count_in(const char *path)
{
    DIR *list = opendir(path);
    int count = 0;
    for (struct dirent *item; list && (item = readdir(list));)
        count += item->d_name[0] != '.';
    if (list)
        closedir(list);
    return count;
}

/* Links planted where the names of a recording go, to a file and to a directory: nothing behind them is touched, and the
 * recorder says so or goes on. */
static void planted_links(void **state)
{
    (void)state;
    static const char *const NAMES[] = {".tensortap", "rank0", "run.json", "step0", "step0/rank0", "step0/proc0", "x_0.npy",
        "0_x.npy", "x_device_0.pt", "rank0/attempt0.json", "rank0/attempt0-000000.tap", "rank0/attempt0.sqlite",
        "rank0/attempt0.lost", "rank0/attempt0.ring", "worldsize1_global_rank0"};
    static const char *const LAYOUTS[] = {"native", "msprobe", "msprobe_modules", "torchair", "mindspore", "torch_npu",
                                          "troubleshooter"};
    for (size_t l = 0; l < sizeof LAYOUTS / sizeof LAYOUTS[0]; l++)
        for (size_t n = 0; n < sizeof NAMES / sizeof NAMES[0]; n++) {
            char *dir = scratch_make(), path[700], victims[700], *text = NULL;
            bool to_dir = (n + l) % 2;
            snprintf(victims, sizeof victims, "%s/victims", dir);
            assert_int_equal(mkdir(victims, 0700), 0);
            snprintf(path, sizeof path, "%s/victims/file", dir);
            FILE *file = fopen(path, "w");
            fputs("victim", file);
            fclose(file);
            snprintf(path, sizeof path, "%s/run/%s", dir, NAMES[n]);
            for (char *at = path + strlen(dir) + 1; (at = strchr(at, '/')); *at++ = '/') {
                *at = 0;
                mkdir(path, 0700);
            }
            assert_int_equal(symlink(to_dir ? victims : "../../victims/file", path), 0);
            snprintf(path, sizeof path, "%s/run", dir);
            tap_options options;
            tap_options_init(&options);
            options.dir = path;
            options.layout = LAYOUTS[l];
            options.writer = "thread";
            options.ring_bytes = 1 << 20;
            options.mode = TAP_OPEN_REPLACE;
            options.asynchronous = n % 3 == 0;
            tap_recorder *rec;
            if (tap_recorder_open(&options, &rec, NULL) == TAP_OK) {
                tap_save(rec, "x", &tensor, NULL);
                tap_step(rec);
                tap_recorder_close(rec, NULL);
            }
            assert_int_equal(count_in(victims), 1);
            snprintf(path, sizeof path, "%s/victims/file", dir);
            assert_int_equal(tap__file_get(path, 100, &text, NULL, NULL), TAP_OK);
            assert_string_equal(text, "victim");
            tap__free(text);
            scratch_drop(dir);
        }
}

/* A process dies with a file half written. */
static void leave_behind(const char *dir, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    pid_t pid = fork();
    if (pid == 0) {
        tap_newfile file;
        const char *last;
        tap_dir *at;
        tap__dir_of_file(path, true, &at, &last, NULL);
        tap__file_create(&file, at, last, NULL);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static int temporaries;

static int count_temporary(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type;
    temporaries += tap__is_temporary(path + at->base);
    return 0;
}

static int temporaries_in(const char *dir)
{
    temporaries = 0;
    nftw(dir, count_temporary, 16, FTW_PHYS);
    return temporaries;
}

static void nothing_temporary_stays(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"native", "msprobe", "msprobe_modules", "torchair", "mindspore", "torch_npu",
                                          "troubleshooter"};
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof LAYOUTS[0]; i++) {
        char *dir = scratch_make();
        leave_behind(dir, "run.json");
        leave_behind(dir, "rank1/attempt0.json");
        leave_behind(dir, "a/b/c/dump_tensor_data/x.pt");
        assert_int_equal(temporaries_in(dir), 3);
        must_close(open_layout(dir, LAYOUTS[i], true, "thread"));
        assert_int_equal(temporaries_in(dir), 0);
        leave_behind(dir, "rank1/attempt0.json");
        assert_int_equal(tap_run_recover(dir, NULL, NULL), TAP_OK);
        assert_int_equal(temporaries_in(dir), 0);
        scratch_drop(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_in_place_on_return),
        cmocka_unit_test(a_list_of_tensors_is_one_file),
        cmocka_unit_test(debug_json_survives_its_writer),
        cmocka_unit_test(waiting_is_for_the_writer),
        cmocka_unit_test(debug_json_is_complete_after_a_flush),
        cmocka_unit_test(a_file_that_cannot_be_written_is_listed),
        cmocka_unit_test(a_name_that_is_refused_is_told_once),
        cmocka_unit_test(planted_links),
        cmocka_unit_test(nothing_temporary_stays),
    };
    return cmocka_run_group_tests_name("recorder layouts", tests, NULL, NULL);
}
