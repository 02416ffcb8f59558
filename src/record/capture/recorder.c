/* recorder.c - the life of a recorder: options, session, writer, steps, flush, close, forks and process exit. */
#include "record/capture/recorder.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "base/sized.h"
#include "record/drain/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define MIB (1024ull * 1024)
#define CHILD_RING_BYTES (8 * MIB)
#define MIND_NS 200000000ull
#define START_MS 20000
#define LOCK_TRIES 100
#define START_PAUSE_NS 30000000000ull

/* ---------------------------------------------------------------------------------------------- the open recorders */

/* The one registry: open recorders, for forks and process exit, and the default one. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static tap_recorder *registry_first;
static _Atomic pid_t registry_pid; /* the process the list belongs to */
static _Atomic(tap_recorder *) default_recorder;
static _Atomic uint32_t fork_generation;

static void after_fork_in_child(void)
{
    atomic_fetch_add(&fork_generation, 1);
    tap__save_forked();
}

static tap_status recorder_end(tap_recorder *rec, tap_session *session, tap_error *err);

/* Recorders left open are ended at exit, so that their files are final when the process is gone. They are not freed:
 * other threads may still be saving. A forked child has a copy of its parent's list, which is none of its business. */
static void end_at_exit(void)
{
    if (registry_pid != getpid())
        return;
    pthread_mutex_lock(&registry_lock);
    for (tap_recorder *rec = registry_first; rec; rec = rec->next)
        recorder_end(rec, atomic_load(&rec->session), NULL);
    pthread_mutex_unlock(&registry_lock);
}

static void registry_start(void)
{
    registry_pid = getpid();
    pthread_atfork(NULL, NULL, after_fork_in_child);
    atexit(end_at_exit);
}

static void registry_add(tap_recorder *rec)
{
    pthread_once(&registry_once, registry_start);
    if (registry_pid != getpid()) { /* first recorder of this process; a parent's lock may be in any state */
        pthread_mutex_init(&registry_lock, NULL);
        registry_first = NULL;
        registry_pid = getpid();
    }
    pthread_mutex_lock(&registry_lock);
    rec->next = registry_first;
    registry_first = rec;
    pthread_mutex_unlock(&registry_lock);
}

static void registry_remove(tap_recorder *rec)
{
    tap_recorder *self = rec;
    atomic_compare_exchange_strong(&default_recorder, &self, NULL);
    if (registry_pid != getpid())
        return;
    pthread_mutex_lock(&registry_lock);
    for (tap_recorder **at = &registry_first; *at; at = &(*at)->next)
        if (*at == rec) {
            *at = rec->next;
            break;
        }
    pthread_mutex_unlock(&registry_lock);
}

tap_recorder *tap_recorder_get_default(void)
{
    return atomic_load_explicit(&default_recorder, memory_order_acquire);
}

void tap_recorder_set_default(tap_recorder *rec)
{
    atomic_store_explicit(&default_recorder, rec, memory_order_release);
}

/* ----------------------------------------------------------------------------------------------------------- options */

void tap_options_init_sized(tap_options *options, size_t size)
{
    static const tap_options USUAL = {
        .layout = "native", .keep = TAP_KEEP_STATS | TAP_KEEP_TENSOR, .reserve_bytes = 256 * MIB, .stall_ms = 30000,
        .segment_bytes = 1024 * MIB, .rank = -1, .world_size = -1, .device_index = -1, .framework = "pytorch"};
    tap__sized_init(options, size, &USUAL, sizeof USUAL);
}

static int number_from_environment(const char *first, const char *second, int otherwise)
{
    const char *const names[] = {first, second};
    for (int i = 0; i < 2; i++) {
        const char *text = names[i] ? getenv(names[i]) : NULL;
        char *end;
        long number = text && *text ? strtol(text, &end, 10) : -1;
        if (number >= 0 && number <= INT_MAX && *end == 0)
            return (int)number;
    }
    return otherwise;
}

/* What this process may use: the container's limit or the machine's memory. */
static uint64_t memory_limit(void)
{
    static const char *const FILES[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    struct sysinfo info;
    uint64_t limit = sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : 1024 * MIB;
    for (int i = 0; i < 2; i++) {
        char *text = NULL;
        if (tap__file_get(FILES[i], 256, &text, NULL, NULL) == TAP_OK) {
            uint64_t value = strtoull(text, NULL, 10);
            if (value && value < limit)
                limit = value;
        }
        tap__free(text);
    }
    return limit;
}

static uint64_t default_ring_bytes(void)
{
    int local = number_from_environment("LOCAL_WORLD_SIZE", NULL, 1);
    uint64_t share = memory_limit() / 32 / (uint64_t)(local > 0 ? local : 1);
    return share < 256 * MIB ? share : 256 * MIB;
}

static const char *copy_option(char **at, const char *text)
{
    if (!text)
        return NULL;
    size_t len = strlen(text) + 1;
    char *copy = memcpy(*at, text, len);
    *at += len;
    return copy;
}

/* A private copy of the options; fills in what was left open. */
static tap_status options_take(tap_recorder *rec, const tap_options *given, tap_error *err)
{
    tap_options *o = &rec->options;
    tap_options_init(o);
    tap__sized_take(o, given);
    if (!o->dir || !*o->dir)
        return tap_fail(err, TAP_E_INVALID, "no directory to record to; set tap_options.dir");
    if (!tap__layout_find(o->layout ? o->layout : "native"))
        return tap_fail(err, TAP_E_INVALID, "layout \"%s\" is not known; choose one of %s", o->layout,
                        tap__layout_names());
    const char **const texts[] = {&o->dir, &o->layout, &o->names, &o->steps, &o->ranks, &o->writer, &o->framework};
    size_t count = sizeof texts / sizeof texts[0], total = 1;
    for (size_t i = 0; i < count; i++)
        total += *texts[i] ? strlen(*texts[i]) + 1 : 0;
    char *at = rec->strings = tap__alloc(total);
    if (!at)
        return tap_fail_nomem(err);
    for (size_t i = 0; i < count; i++)
        *texts[i] = copy_option(&at, *texts[i]);
    if (!o->layout)
        o->layout = "native";
    if (!o->framework)
        o->framework = "pytorch";
    if (o->rank < 0)
        o->rank = number_from_environment("RANK", "RANK_ID", 0);
    if (o->world_size < 0)
        o->world_size = number_from_environment("WORLD_SIZE", "RANK_SIZE", 1);
    if (o->device_index < 0)
        o->device_index = number_from_environment("LOCAL_RANK", NULL, 0);
    if (!o->ring_bytes)
        o->ring_bytes = default_ring_bytes();
    if (o->ring != TAP_RING_FILE && o->ring_bytes > memory_limit() / 2)
        return tap_fail(err, TAP_E_INVALID, "a ring of %llu bytes is more than half of the memory there is (%llu); choose "
                        "a smaller ring_bytes", (unsigned long long)o->ring_bytes, (unsigned long long)memory_limit());
    if (!o->segment_bytes)
        o->segment_bytes = 1024 * MIB;
    if (o->stall_ms <= 0)
        o->stall_ms = 30000;
    if (o->ring == TAP_RING_AUTO)
        o->ring = getpid() == 1 ? TAP_RING_FILE : TAP_RING_MEMORY;
    tap_ranges ranks;
    TAP_TRY(tap__ranges_parse(&ranks, o->ranks, "ranks", err));
    rec->rank_wanted = tap__ranges_contain(&ranks, o->rank);
    tap__ranges_free(&ranks);
    return tap__ranges_parse(&rec->steps, o->steps, "steps", err);
}

/* ------------------------------------------------------------------------------------------------------------ telling */

void tap__recorder_tell(tap_recorder *rec, uint32_t told, const tap_error *err)
{
    pthread_mutex_lock(&rec->error_lock);
    rec->error = *err;
    bool said = told && rec->told & told;
    rec->told |= told;
    pthread_mutex_unlock(&rec->error_lock);
    if (!said)
        tap__log(TAP_LOG_WARNING, "%s", err->message);
}

void tap_recorder_error(tap_recorder *rec, tap_error *out)
{
    if (!out)
        return;
    *out = (tap_error){.status = TAP_OK};
    if (!rec)
        return;
    pthread_mutex_lock(&rec->error_lock);
    *out = rec->error;
    pthread_mutex_unlock(&rec->error_lock);
}

void tap__recorder_hear(tap_recorder *rec, tap_session *session)
{
    if (!session->has_ring)
        return;
    tap_ring_header *h = session->ring.header;
    uint32_t count = atomic_load_explicit(&h->error_count, memory_order_acquire);
    if (atomic_exchange(&session->errors_seen, count) == count)
        return;
    tap_error err;
    tap_fail(&err, TAP_E_IO, "%.*s", (int)sizeof h->error_text, h->error_text);
    tap__recorder_tell(rec, 0, &err);
}

/* ------------------------------------------------------------------------------------------------------------- writer */

static void *writer_thread(void *argument)
{
    tap_session *session = argument;
    tap_error err;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals are the application's */
    if (tap__writer_run(&session->ring, session->root, TAP_WRITER_THREAD, &err) != TAP_OK) {
        atomic_store(&session->thread_failed, true);
        tap__ring_report(&session->ring, err.message);
    }
    return NULL;
}

/* Waits until the new writer says hello. */
static bool writer_came(tap_session *session, uint32_t starts, uint32_t errors)
{
    tap_ring_header *h = session->ring.header;
    for (uint64_t start = tap__monotonic_ns(); tap__monotonic_ns() - start < START_MS * 1000000ull;) {
        uint32_t seen = atomic_load(&h->tail_futex);
        if (atomic_load(&h->starts) != starts)
            return true;
        if (atomic_load(&h->error_count) != errors)
            return false;
        tap__ring_wait_tail(&session->ring, seen, 20);
    }
    return false;
}

static void join_thread(tap_session *session)
{
    pthread_join(session->thread, NULL);
    tap__ring_give_lock(&session->ring, TAP_RING_WRITER);
    session->has_thread = false;
}

/* A process that could not start says so a moment before it is gone. */
static bool take_lock_soon(const tap_ring *ring)
{
    for (int i = 0; i < LOCK_TRIES; i++, usleep(2000))
        if (tap__ring_take_lock(ring, TAP_RING_WRITER))
            return true;
    return false;
}

/* The lock keeps out a process that was started, given up on and comes after all. */
static tap_status start_thread(tap_session *session, tap_error *err)
{
    tap_ring_header *h = session->ring.header;
    uint32_t starts = atomic_load(&h->starts), errors = atomic_load(&h->error_count);
    if (!take_lock_soon(&session->ring))
        return TAP_OK;
    int failed = pthread_create(&session->thread, NULL, writer_thread, session);
    if (failed) {
        tap__ring_give_lock(&session->ring, TAP_RING_WRITER);
        errno = failed;
        return tap_fail_errno(err, TAP_E_IO, "cannot start a thread to write with");
    }
    session->has_thread = true;
    if (writer_came(session, starts, errors) || !atomic_load(&session->thread_failed))
        return TAP_OK; /* a slow one is waited for by those who need it */
    join_thread(session);
    atomic_store(&session->thread_failed, false);
    return tap_fail(err, TAP_E_IO, "the writer could not start: %.*s", (int)sizeof h->error_text, h->error_text);
}

static tap_status start_writer(tap_session *session, tap_error *err)
{
    if (!session->command)
        return start_thread(session, err);
    tap_ring_header *h = session->ring.header;
    uint32_t starts = atomic_load(&h->starts), errors = atomic_load(&h->error_count);
    tap_status status = tap__writer_spawn(&session->ring, session->root, session->command, err);
    if (status == TAP_OK && writer_came(session, starts, errors))
        return TAP_OK;
    if (atomic_load(&h->error_count) != errors)
        status = tap_fail(err, TAP_E_IO, "the writer could not start: %.400s", h->error_text);
    if (status == TAP_OK)
        status = tap_fail(err, TAP_E_TIMEOUT, "the writer %s did not answer within %d s", session->command,
                          START_MS / 1000);
    return status;
}

/* A process if it can be had, else a thread, with a word on what that cannot promise. */
static tap_status start_any_writer(tap_recorder *rec, tap_session *session, tap_error *err)
{
    tap__ring_hold_again(&session->ring, false);
    tap_status status = start_writer(session, err);
    if (status == TAP_OK || !session->command)
        return status;
    tap_error note;
    tap_fail(&note, status, "%.600s; a thread writes instead: values saved just before this process is killed may be "
             "lost", err->message);
    tap__recorder_tell(rec, TAP_TOLD_WRITER, &note);
    tap__free(session->command);
    session->command = NULL;
    return start_thread(session, err);
}

/* Writers that die before they get anything done are started less and less often. */
static void restart_writer(tap_recorder *rec, tap_session *session)
{
    uint64_t progress = atomic_load(&session->ring.header->progress), pause = session->start_pause_ns;
    if (session->started_ns && progress == session->start_progress)
        pause = pause ? 2 * pause : MIND_NS;
    else
        pause = 0;
    session->start_pause_ns = pause < START_PAUSE_NS ? pause : START_PAUSE_NS;
    session->start_progress = progress;
    session->started_ns = tap__monotonic_ns();
    if (!pause)
        tap__log(TAP_LOG_WARNING, "the writer of %s ended; starting another one, nothing is lost",
                 session->dir->path);
    tap_error err;
    if (start_any_writer(rec, session, &err) != TAP_OK)
        tap__recorder_tell(rec, TAP_TOLD_RESTART, &err);
}

void tap__recorder_mind_writer(tap_recorder *rec, tap_session *session, bool now)
{
    if (!session->has_ring || atomic_load(&session->ring.header->finished))
        return;
    uint64_t ns = tap__monotonic_ns(), last = atomic_load(&session->checked_ns);
    if (!now && ns - last < MIND_NS)
        return;
    atomic_store(&session->checked_ns, ns);
    tap__ring_hold_again(&session->ring, session->has_thread);
    if (session->has_thread || tap__ring_is_locked(&session->ring, TAP_RING_WRITER))
        return;
    pthread_mutex_lock(&session->lock);
    bool finished = atomic_load(&session->ring.header->finished);
    if (!finished && !session->has_thread && ns - session->started_ns >= session->start_pause_ns &&
        !tap__ring_is_locked(&session->ring, TAP_RING_WRITER))
        restart_writer(rec, session);
    pthread_mutex_unlock(&session->lock);
}

/* ------------------------------------------------------------------------------------------------------------ session */

/* true: a thread hangs in the disk. Better to leak what it uses, the recorder's directory too, than to hang with it. */
static bool session_free(tap_session *session)
{
    if (session->has_thread) {
        pthread_detach(session->thread);
        return true;
    }
    if (session->has_ring)
        tap__ring_close(&session->ring);
    else
        tap__tally_unmap(session->tally);
    tap__namer_free(session->namer);
    tap__journal_close(session->journal);
    tap__site_table_free(&session->sites);
    tap__free(session->command);
    if (session->dir != session->root)
        tap__dir_close(session->dir);
    pthread_mutex_destroy(&session->lock);
    tap__free(session);
    return false;
}

static void fill_config(tap_ring_config *c, const tap_recorder *rec, const tap_session *s)
{
    const tap_options *o = &rec->options;
    memset(c, 0, sizeof *c);
    snprintf(c->dir, sizeof c->dir, "%s", s->root->path);
    snprintf(c->dir_shown, sizeof c->dir_shown, "%s", o->dir);
    snprintf(c->layout, sizeof c->layout, "%s", o->layout);
    snprintf(c->framework, sizeof c->framework, "%s", o->framework);
    c->rank = o->rank;
    c->attempt = s->files.attempt;
    c->child = s->child;
    c->several_nodes = o->world_size > number_from_environment("LOCAL_WORLD_SIZE", NULL, INT_MAX);
    c->world_size = o->world_size;
    c->device_index = o->device_index;
    c->pid = (int32_t)getpid();
    c->pid_start = tap__process_start(c->pid);
    c->distributed = o->distributed;
    c->checksum = (uint8_t)o->checksum;
    c->asynchronous = o->asynchronous;
    c->file_ring = o->ring == TAP_RING_FILE;
    c->keep = o->keep;
    c->durability = o->durability;
    c->segment_bytes = o->segment_bytes;
    c->max_bytes = o->max_bytes;
    c->reserve_bytes = o->reserve_bytes;
    c->last = o->last;
    c->first_step = atomic_load(&rec->step);
}

static tap_status session_ring(tap_recorder *rec, tap_session *session, const tap_ring_config *config, int32_t child,
                               tap_error *err)
{
    const tap_options *o = &rec->options;
    uint64_t bytes = child && o->ring_bytes > CHILD_RING_BYTES ? CHILD_RING_BYTES : o->ring_bytes;
    bool in_file = config->file_ring && session->layout->native;
    char name[TAP_ATTEMPT_NAME];
    TAP_TRY(tap__ring_create(&session->ring, session->root,
                             in_file ? tap__attempt_name(&session->files, ".ring", name) : NULL, bytes, config, err));
    session->has_ring = true;
    session->tally = session->ring.tally;
    if (session->journal && tap__journal_begin(session->journal, session->ring.header->config.tally) != TAP_OK)
        return tap_fail_errno(err, TAP_E_IO, "cannot write below %s/.tensortap", session->root->path);
    tap__ring_take_lock(&session->ring, TAP_RING_PRODUCER);
    if (!o->writer || strcmp(o->writer, "thread") != 0) {
        session->command = tap__writer_find(o->writer);
        if (!session->command) {
            tap_error note;
            tap_fail(&note, TAP_E_NOTFOUND, "the command tensortap was not found beside the library or in PATH (set "
                     "TENSORTAP_WRITER); a thread writes instead: values saved just before this process is killed may "
                     "be lost");
            tap__recorder_tell(rec, TAP_TOLD_WRITER, &note);
        }
    }
    return start_any_writer(rec, session, err);
}

/* Opens the directory, once: the program may change its own later, or have no descriptors left. */
static tap_status recorder_dir(tap_recorder *rec, tap_error *err)
{
    TAP_TRY(tap__dir_open(rec->options.dir, true, &rec->dir, err));
    if (strlen(rec->dir->path) > sizeof((tap_ring_config *)0)->dir - 64)
        return tap_fail(err, TAP_E_LIMIT, "the path %s is too long", rec->dir->path);
    if (faccessat(tap__dir_fd(rec->dir), ".", W_OK | X_OK, 0) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot write to %s", rec->dir->path);
    tap__clear_temporaries(rec->dir, "", TAP_CLEAR_DEPTH);
    return TAP_OK;
}

static tap_status session_dir(tap_recorder *rec, tap_session *session, int32_t child, tap_error *err)
{
    if (!rec->dir)
        TAP_TRY(recorder_dir(rec, err));
    session->root = session->dir = rec->dir;
    if (!child || session->layout->native)
        return TAP_OK;
    tap_dir *own; /* a child's files beside its parent's, never the same */
    TAP_TRY(tap__layout_child_dir(session->root, rec->options.rank, child, &own, err));
    session->dir = own;
    return TAP_OK;
}

static tap_status session_start(tap_recorder *rec, tap_session *session, int32_t child, tap_error *err)
{
    char tally[TAP_TALLY_NAME];
    tap__tally_name(tally);
    session->layout = tap__layout_find(rec->options.layout);
    session->child = child;
    TAP_TRY(tap__site_table_init(&session->sites, rec->options.names, err));
    TAP_TRY(session_dir(rec, session, child, err));
    if (session->layout->native) {
        tap_attempt_info info = {.pid = (int32_t)getpid(), .world_size = rec->options.world_size};
        info.started_ns = tap__wall_ns();
        gethostname(info.host, sizeof info.host - 1);
        const char *ranks = rec->options.ranks ? rec->options.ranks : "";
        strcpy(info.ranks, strlen(ranks) < sizeof info.ranks ? ranks : "?");
        if (rec->options.ring == TAP_RING_FILE) /* the file keeps its own counts */
            tally[0] = 0;
        memcpy(info.tally, tally, sizeof tally);
        TAP_TRY(tap__attempt_take(session->root, rec->options.rank, child, child ? TAP_OPEN_APPEND : rec->options.mode,
                                  &info, &session->files, err));
    }
    else
        TAP_TRY(tap__losses_begin(session, tally, rec->options.rank, err));
    tap_ring_config *config = tap__alloc(sizeof *config);
    if (!config)
        return tap_fail_nomem(err);
    fill_config(config, rec, session);
    memcpy(config->tally, tally, sizeof tally);
    memcpy(config->who, session->who, sizeof config->who);
    tap_status status = TAP_OK;
    if (!session->layout->native) {
        tap_layout_options options = tap__layout_options(session->dir, config);
        options.dir_shown = rec->options.dir; /* config goes, these stay */
        options.framework = rec->options.framework;
        status = tap__namer_create(session->layout, &options, &session->namer, err);
    }
    bool needs_ring = session->layout->native || session->layout->collect || rec->options.asynchronous;
    if (status == TAP_OK && needs_ring)
        status = session_ring(rec, session, config, child, err);
    else if (status == TAP_OK && !(session->tally = tap__tally_private()))
        status = tap_fail_nomem(err);
    tap__free(config);
    return status;
}

static tap_session *session_new(tap_recorder *rec, int32_t child, tap_error *err)
{
    tap_session *session = tap__calloc(1, sizeof *session);
    if (!session) {
        tap_fail_nomem(err);
        return NULL;
    }
    pthread_mutex_init(&session->lock, NULL);
    if (session_start(rec, session, child, err) == TAP_OK)
        return session;
    if (session->has_ring)
        atomic_store(&session->ring.header->closed, 1);
    if (!session->has_thread && (!session->has_ring || !tap__ring_is_locked(&session->ring, TAP_RING_WRITER)))
        tap__attempt_give_back(&session->files); /* else the writer ends it, when it comes to */
    tap__losses_abandon(session);
    if (session_free(session))
        rec->dir = NULL;
    return NULL;
}

tap_session *tap__recorder_session(tap_recorder *rec)
{
    uint32_t now = atomic_load_explicit(&fork_generation, memory_order_relaxed);
    if (atomic_load_explicit(&rec->generation, memory_order_acquire) == now)
        return atomic_load_explicit(&rec->session, memory_order_relaxed);
    /* The first save in a forked child. The parent's session stays as it is: its locks may be held by threads that do
     * not exist here. */
    if (atomic_exchange(&rec->opening, now) == now) {
        while (atomic_load(&rec->generation) != now)
            usleep(1000);
        return atomic_load(&rec->session);
    }
    pthread_mutex_init(&rec->error_lock, NULL);
    pthread_mutex_init(&rec->step_lock, NULL);
    tap_error err;
    tap_session *before = atomic_load(&rec->session), *session = session_new(rec, (int32_t)getpid(), &err);
    if (!session)
        tap__recorder_tell(rec, 0, &err);
    if (!session && before)
        rec->parent = before->tally;
    atomic_store(&rec->session, session);
    atomic_store(&rec->generation, now);
    return session;
}

/* ------------------------------------------------------------------------------------------------------- open and steps */

bool tap__recorder_wants_step(const tap_recorder *rec, int64_t step)
{
    int64_t every = rec->options.every;
    return tap__ranges_contain(&rec->steps, step) && (every <= 1 || step % every == 0);
}

static bool should_be_active(const tap_recorder *rec)
{
    return rec->rank_wanted && !atomic_load(&rec->paused) && atomic_load(&rec->frozen_after) == INT64_MAX &&
           !atomic_load(&rec->ended) && tap__recorder_wants_step(rec, atomic_load(&rec->step));
}

/* Another thread may pause or step meanwhile: whoever stores last has looked at everything after it. */
static void set_active(tap_recorder *rec)
{
    bool active;
    do
        atomic_store(&rec->active, active = should_be_active(rec));
    while (active != should_be_active(rec));
}

void tap_recorder_enable(tap_recorder *rec, bool enabled)
{
    if (!rec)
        return;
    atomic_store(&rec->paused, !enabled);
    set_active(rec);
}

static void recorder_free(tap_recorder *rec)
{
    tap__ranges_free(&rec->steps);
    tap__free(rec->strings);
    tap__dir_close(rec->dir);
    pthread_mutex_destroy(&rec->error_lock);
    pthread_mutex_destroy(&rec->step_lock);
    tap__free(rec);
}

tap_status tap_recorder_open(const tap_options *options, tap_recorder **out, tap_error *err)
{
    TAP_NEED(err, out);
    *out = NULL;
    TAP_NEED_SIZED(err, tap_options, options);
    tap_recorder *rec = tap__calloc(1, sizeof *rec);
    if (!rec)
        return tap_fail_nomem(err);
    pthread_mutex_init(&rec->error_lock, NULL);
    pthread_mutex_init(&rec->step_lock, NULL);
    tap_status status = options_take(rec, options, err);
    atomic_store(&rec->generation, atomic_load(&fork_generation));
    atomic_store(&rec->opening, atomic_load(&fork_generation));
    atomic_store(&rec->frozen_after, INT64_MAX);
    atomic_store(&rec->step, rec->options.first_step);
    tap_error local;
    if (status == TAP_OK && rec->rank_wanted) {
        tap_session *session = session_new(rec, 0, err ? err : &local);
        atomic_store(&rec->session, session);
        if (!session)
            status = err ? err->status : local.status;
    }
    if (status != TAP_OK) {
        recorder_free(rec);
        return status;
    }
    set_active(rec);
    registry_add(rec);
    *out = rec;
    return TAP_OK;
}

int64_t tap_recorder_get_step(const tap_recorder *rec)
{
    return rec ? atomic_load(&rec->step) : 0;
}

static tap_status no_next_step(tap_recorder *rec)
{
    tap_error err;
    tap_fail(&err, TAP_E_INVALID, "%s: step %lld is the last there is; set another with tap_recorder_set_step",
             rec->options.dir, (long long)INT64_MAX);
    tap__recorder_tell(rec, TAP_TOLD_STEP, &err);
    return TAP_E_INVALID;
}

/* Ends the step that is and begins the next one, or `step`. */
static void tell_frozen(tap_recorder *rec, int64_t last)
{
    char what[sizeof rec->first_bad];
    pthread_mutex_lock(&rec->error_lock);
    memcpy(what, rec->first_bad, sizeof what);
    pthread_mutex_unlock(&rec->error_lock);
    tap__log(TAP_LOG_WARNING, "%s: NaN or infinity in %s; recording is frozen after step %lld, see: tensortap nan %s",
             rec->options.dir, what, (long long)last, rec->options.dir);
}

static tap_status change_step(tap_recorder *rec, tap_session *session, bool next, int64_t step)
{
    int64_t ended = atomic_load(&rec->step), not_frozen = INT64_MAX;
    if (next && ended == INT64_MAX)
        return no_next_step(rec);
    tap_status status = TAP_OK;
    if (session && session->has_ring)
        status = tap__save_mark(rec, session, TAP_ENTRY_STEP, ended);
    while (!atomic_compare_exchange_weak(&rec->step, &ended, next ? ended + 1 : step))
        if (next && ended == INT64_MAX)
            return no_next_step(rec);
    if (rec->options.freeze_on_nan && atomic_load(&rec->bad_seen) &&
        atomic_compare_exchange_strong(&rec->frozen_after, &not_frozen, ended))
        tell_frozen(rec, ended);
    set_active(rec);
    return status;
}

static tap_status step_to(tap_recorder *rec, bool next, int64_t step)
{
    tap_session *session = rec->rank_wanted ? tap__recorder_session(rec) : NULL;
    if (!session)
        return change_step(rec, NULL, next, step);
    tap__save_losses(rec, session);
    pthread_mutex_lock(&rec->step_lock); /* the ring tells of steps in the order they end */
    tap_status status = change_step(rec, session, next, step);
    pthread_mutex_unlock(&rec->step_lock);
    if (!session->has_ring)
        return status;
    tap__recorder_mind_writer(rec, session, false);
    tap__recorder_hear(rec, session);
    return status == TAP_OK && rec->options.durability >= TAP_DURABLE_FLUSH ? tap__recorder_keep(rec) : status;
}

tap_status tap_recorder_set_step(tap_recorder *rec, int64_t step)
{
    return rec ? step_to(rec, false, step) : TAP_OK;
}

tap_status tap_step(tap_recorder *rec)
{
    return rec ? step_to(rec, true, 0) : TAP_OK;
}

/* ---------------------------------------------------------------------------------------------------- flush and close */

typedef bool (*wait_done_fn)(tap_ring_header *header, uint64_t want);

static bool flush_is_done(tap_ring_header *header, uint64_t want)
{
    return atomic_load(&header->flush_done) >= want;
}

static bool finish_is_done(tap_ring_header *header, uint64_t want)
{
    (void)want;
    return atomic_load(&header->finished);
}

/* Waits for the writer, as long as it makes progress; timeout_ms 0: only looks. */
static tap_status wait_for_writer(tap_recorder *rec, tap_session *s, wait_done_fn done, uint64_t want, int timeout_ms,
                                  tap_error *err)
{
    tap_ring_header *h = s->ring.header;
    uint64_t start = tap__monotonic_ns(), moved = start, progress = atomic_load(&h->progress);
    for (;;) {
        uint32_t seen = atomic_load(&h->tail_futex);
        if (done(h, want))
            return TAP_OK;
        tap__ring_wake_writer(&s->ring);
        tap__recorder_mind_writer(rec, s, false);
        uint64_t now = tap__monotonic_ns();
        if (atomic_load(&h->progress) != progress) {
            progress = atomic_load(&h->progress);
            moved = now;
        }
        if (timeout_ms >= 0 && now - start >= (uint64_t)timeout_ms * 1000000u)
            return tap_fail(err, TAP_E_TIMEOUT, "%s: not everything was written within %d ms", s->dir->path, timeout_ms);
        if (now - moved > (uint64_t)rec->options.stall_ms * 1000000u) {
            atomic_store(&s->stalled_at, progress + 1);
            return tap_fail(err, TAP_E_TIMEOUT, "%s: the writer made no progress for %d ms; is the disk working?",
                            s->dir->path, rec->options.stall_ms);
        }
        tap__ring_wait_tail(&s->ring, seen, 20);
    }
}

tap_status tap_recorder_flush(tap_recorder *rec, int timeout_ms, tap_error *err)
{
    tap_session *session = rec && rec->rank_wanted ? tap__recorder_session(rec) : NULL;
    if (session)
        tap__save_losses(rec, session);
    if (!session)
        return TAP_OK;
    if (!session->has_ring)
        return tap__session_place(rec, session, err);
    tap_ring_header *h = session->ring.header;
    uint64_t want = tap__ring_head_seq(&session->ring), asked = atomic_load(&h->flush_want);
    while (asked < want && !atomic_compare_exchange_weak(&h->flush_want, &asked, want))
        ;
    tap_status status = wait_for_writer(rec, session, flush_is_done, want, timeout_ms, err);
    tap__recorder_hear(rec, session);
    if (status == TAP_OK)
        status = tap__session_synced(session, err);
    if (status == TAP_OK)
        status = tap__session_ended(session, tap__session_ended_early(session), want, err);
    if (status == TAP_E_TIMEOUT)
        return status;
    tap_status place = tap__session_place(rec, session, err); /* where there is nowhere to write to, that is the reason */
    return place == TAP_OK ? status : place;
}

static void count_session(tap_session *session, tap_counts *out)
{
    const tap_tally *tally = session->tally;
    out->saved = atomic_load(&tally->saved);
    out->saved_bytes = atomic_load(&tally->saved_bytes);
    out->stats_only = atomic_load(&tally->stats_only);
    out->dropped = atomic_load(&tally->dropped);
    if (!session->has_ring)
        return;
    tap_ring_header *h = session->ring.header;
    out->ring_bytes = h->data_bytes;
    out->ring_used = tap__ring_used(&session->ring);
    out->written_bytes = atomic_load(&h->written_bytes);
    out->writer_pid = atomic_load(&h->writer_pid);
}

tap_status tap_recorder_counts(tap_recorder *rec, tap_counts *out)
{
    TAP_NEED_SIZED(NULL, tap_counts, out);
    tap_counts counts = {.writer_pid = -1, .filtered = rec ? atomic_load(&rec->filtered) : 0};
    tap_session *session = rec ? atomic_load(&rec->session) : NULL;
    if (session && atomic_load(&rec->generation) == atomic_load(&fork_generation))
        count_session(session, &counts);
    tap__sized_give(out, &counts);
    return TAP_OK;
}

/* Waits until everything is in its files. The session stays: it is freed by tap_recorder_close only. */
static tap_status recorder_end(tap_recorder *rec, tap_session *session, tap_error *err)
{
    if (atomic_exchange(&rec->ended, true))
        return TAP_OK;
    set_active(rec);
    if (!session)
        return TAP_OK;
    tap__save_losses(rec, session);
    tap_status status = TAP_OK;
    if (session->has_ring) {
        tap_ring_header *h = session->ring.header;
        atomic_fetch_add(&session->tally->filtered, atomic_load(&rec->filtered));
        uint64_t want = tap__ring_head_seq(&session->ring);
        bool early = tap__session_ended_early(session);
        atomic_store(&h->closed, 1);
        status = wait_for_writer(rec, session, finish_is_done, 0, -1, err);
        tap__recorder_hear(rec, session);
        if (session->has_thread && atomic_load(&h->finished))
            join_thread(session);
        if (status == TAP_OK)
            status = tap__session_synced(session, err);
        if (status == TAP_OK)
            status = tap__session_ended(session, early, want, err);
    }
    if (!session->layout->native)
        tap__losses_end(session);
    uint64_t lost = atomic_load(&session->tally->dropped) + atomic_load(&session->tally->lost);
    if (status == TAP_E_TIMEOUT)
        return status;
    tap_status place = tap__session_place(rec, session, err);
    status = place == TAP_OK ? status : place;
    if (status == TAP_OK && lost)
        status = tap_fail(err, TAP_E_LOST, "%llu saves were not kept; run: tensortap verify %s",
                          (unsigned long long)lost, session->dir->path);
    return status;
}

tap_status tap_recorder_close(tap_recorder *rec, tap_error *err)
{
    if (!rec)
        return TAP_OK;
    registry_remove(rec);
    if (atomic_load(&rec->generation) != atomic_load(&fork_generation)) { /* a child frees nothing of its parent's */
        atomic_store(&rec->ended, true);
        set_active(rec);
        return TAP_OK;
    }
    tap_session *session = atomic_load(&rec->session);
    tap_status status = recorder_end(rec, session, err);
    if (session && session_free(session))
        rec->dir = NULL;
    recorder_free(rec);
    return status;
}
