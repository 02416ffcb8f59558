/* stress.h - what the parts of the stress driver share. A case is one seed: a plan of operations, carried out by one or
 * two producers while faults happen to them, and the truth about it, kept outside the recording. What verify and the
 * cursors say of the recording is then compared with the truth.
 *
 *     stress_plan.c   seed -> plan, and how a plan is printed
 *     truth.c     the shared records: written before a save, marked after it returned
 *     producer.c  carries the operations out
 *     faults.c    what happens to producers, writers, disk and files
 *     check.c     the recording against the truth
 *     case.c      one case from start to end, in a process of its own
 *     load.c      a program that only records, and its check, for the tests in tests/fault
 *     stress.c    main: many cases, known findings, shrinking, replay */
#ifndef TAP_TESTS_STRESS_H
#define TAP_TESTS_STRESS_H

#include "tensortap/tensortap.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ------------------------------------------------------------------------------------------------------------- plan */

/* X(id, name, needs root, may take OK saves away when listed) */
#define FAULT_MAP(X)                                                                                                 \
    X(NONE, "none", 0, 0)                                                                                            \
    X(KILL_PRODUCER, "producer killed", 0, 0)                                                                        \
    X(KILL_WRITER, "writer killed", 0, 0)                                                                            \
    X(STOP, "writer stopped", 0, 0)                                                                                  \
    X(KILL_BOTH, "both killed", 0, 1)                                                                                \
    X(DISK_FULL, "disk full", 1, 1)                                                                                  \
    X(SPACE_BACK, "disk full, space back", 1, 1)                                                                     \
    X(REMOVE, "directory removed", 0, 1)                                                                             \
    X(RENAME, "directory renamed", 0, 0)                                                                             \
    X(TRUNCATE, "file truncated", 0, 1)                                                                              \
    X(NO_FDS, "descriptors exhausted", 0, 1)                                                                         \
    X(NO_PROC, "no /proc", 1, 0)                                                                                     \
    X(PID_SPACE, "other PID namespace", 1, 0)

typedef enum fault_kind {
#define X(id, name, root, loses) FAULT_##id,
    FAULT_MAP(X)
#undef X
        FAULT_COUNT
} fault_kind;

typedef struct fault_info {
    const char *name;
    bool needs_root, loses;
} fault_info;
extern const fault_info FAULTS[FAULT_COUNT];

enum { LAYOUT_COUNT = 7, MAX_RANKS = 2, MAX_OPS = 48, MAX_LEAVES = 4, MAX_THREADS = 4 };
extern const char *const LAYOUT_NAMES[LAYOUT_COUNT];

typedef enum op_kind {
    OP_OPEN,
    OP_SAVE,
    OP_NESTED,
    OP_GRAD,      /* a save that announces a gradient, which comes now, later or never */
    OP_BURST,     /* threads save at once */
    OP_STEP,
    OP_FLUSH,
    OP_FORK,      /* a child saves, and ends in one of three ways */
    OP_CLOSE,
    OP_FAULT,     /* asks the case for its fault; goes on at once, or when it has happened */
    OP_PAUSE
} op_kind;

typedef struct op {
    op_kind kind;
    fault_kind fault;
    tap_open_mode mode;
    uint32_t elements, leaves, threads, count, micros;
    int how;      /* GRAD: 0 now, 1 at the end, 2 never. FORK: 0 close, 1 _exit, 2 SIGKILL. NESTED: 0 list, 1 dict, 2 tuple */
    bool strided, wait;
} op;

typedef struct plan {
    uint64_t seed;
    int layout, ranks;
    bool asynchronous, file_ring, thread_writer, distributed;
    fault_kind fault;
    int durability;
    uint64_t ring_bytes, segment_bytes, last, disk_bytes; /* disk_bytes: 0: where the driver works, else a tmpfs */
    int stall_ms;
    tap_open_mode reopened; /* opened again like this at the end, and looked for what a kill left there; NEW: not */
    int count;
    op ops[MAX_OPS];
} plan;

/* The same seed is the same plan. Seeds one after the other walk over layouts, async and faults. */
void plan_make(plan *out, uint64_t seed);
/* From this seed on: kill -9 at a random moment, of every layout, synchronous and not, in turns. */
#define KILL_CASES 1000000000000u
void plan_print(const plan *p);
bool plan_is_native(const plan *p);

/* ------------------------------------------------------------------------------------------------------------ truth */

enum { TRUTH_RECORDS = 1 << 20 };
enum { TRUTH_EMPTY, TRUTH_BEGUN, TRUTH_RETURNED };
enum { TRUTH_ANY_STEP = -1 }; /* another thread ends steps meanwhile */
enum { TRUTH_GRAD = 1, TRUTH_ANNOUNCED = 2, TRUTH_CHILD = 4 };

/* One expected value. Its name in the recording is "v<base>": base is its own number, that of the first leaf of its
 * nested value, or that of the value it is the gradient of. Its elements follow from its number; the first is it. */
typedef struct truth_record {
    _Atomic uint32_t state;
    uint32_t base, leaves;
    uint32_t elements;
    uint16_t rank, run;      /* run: which directory */
    uint16_t flags, thread;
    int32_t status;          /* what the save returned */
    int64_t step;
} truth_record;

typedef struct truth_rank {
    _Atomic int32_t pid;
    _Atomic int32_t op;            /* under way */
    _Atomic int32_t close_status, flush_status, open_status; /* the newest; -1: none yet */
    _Atomic uint32_t marks;        /* steps and other entries without a value */
    _Atomic bool done, close_saw_fault; /* the fault had happened when the newest close began */
    _Atomic int32_t runs;          /* directories used */
    char message[400];             /* of the last failure */
} truth_rank;

typedef struct truth {
    _Atomic uint32_t next;
    _Atomic uint32_t asked, answered; /* faults */
    _Atomic uint32_t fault_op;
    _Atomic bool fault_done;          /* something was done to somebody */
    _Atomic bool removed, renamed;
    truth_rank ranks[MAX_RANKS];
    truth_record records[TRUTH_RECORDS];
} truth;

/* In the file at path, or in memory that forked processes share. */
truth *truth_map(const char *path, bool create);
void truth_unmap(truth *t);
/* Takes `leaves` records one after the other and marks them begun; the number of the first. */
uint32_t truth_begin(truth *t, const truth_record *like, const uint32_t *elements, uint32_t leaves);
void truth_end(truth *t, uint32_t first, uint32_t leaves, tap_status status);
/* Saves a new tensor of like->elements elements; its number. */
uint32_t value_save(tap_recorder *rec, truth *t, const truth_record *like, bool strided, tap_saved *saved);
int32_t truth_value(uint32_t number, uint32_t at);

/* --------------------------------------------------------------------------------------------------------- findings */

/* X(id, text) */
#define FINDING_MAP(X)                                                                                               \
    X(CRASH, "crashed")                                                                                              \
    X(HANG, "hangs")                                                                                                 \
    X(WRONG, "another value than was saved")                                                                         \
    X(SILENT, "gone, and verify does not say so")                                                                    \
    X(LOST, "gone, although nothing took it away")                                                                   \
    X(LISTED, "listed as lost, but it is there")                                                                     \
    X(ALARM, "verify finds fault with what is whole")                                                                \
    X(STRANGE, "a record that nobody saved, or twice")                                                               \
    X(NOT_TOLD, "a call said all is well")                                                                           \
    X(FAILED, "a call failed without a reason")                                                                      \
    X(UNREADABLE, "the recording cannot be opened")                                                                  \
    X(LEFT, "a writer or a file is left behind")

typedef enum finding_kind {
#define X(id, text) FIND_##id,
    FINDING_MAP(X)
#undef X
        FINDING_COUNT
} finding_kind;
extern const char *const FINDING_TEXTS[FINDING_COUNT];

enum { FINDINGS_KEPT = 12 };
typedef struct findings {
    _Atomic uint32_t count;
    _Atomic uint64_t saves, operations, whole, partial, missing, listed; /* saves: had returned */
    bool skipped;            /* the case could not be made here; the first text says why */
    struct {
        finding_kind kind;
        char text[400];
    } items[FINDINGS_KEPT];
} findings;
__attribute__((format(printf, 3, 4))) void finding_add(findings *all, finding_kind kind, const char *format, ...);

/* ------------------------------------------------------------------------------------------------------- the parts */

/* Carries the plan out as one rank, in dir/r<n>. Does not return. enabled: bit per operation. */
_Noreturn void producer_run(const plan *made, int rank, truth *t, const char *dir, uint64_t enabled);

/* What a fault is done with. */
typedef struct victims {
    const plan *plan;
    truth *t;
    const char *dir;      /* of the case: the recordings are dir/r0, dir/r1, ... */
    pid_t parent;         /* whose children the writers become */
    pid_t producers[MAX_RANKS];
    bool stopped;         /* writers wait for SIGCONT */
    uint64_t dice;
} victims;
void fault_do(victims *v, fault_kind kind);
void fault_undo(victims *v);
/* Writers (or whatever is left) of the case; how many. signal_number 0: only counts. */
int writers_signal(const victims *v, int signal_number);
/* Forked children that still save. */
int children_left(const victims *v);

typedef struct check_policy {
    bool may_lose;        /* OK saves may be missing when listed */
    bool opening;         /* killed before the first open had returned: that it did not end is all there is to say */
    uint64_t uncounted;   /* a writer that was killed may have put so many in place without having counted them yet */
    bool damaged;         /* files were cut: counts of what is lost may be of entries, not saves */
    bool unknown_will_do;   /* "the end is missing" without a number is enough */
    bool recovered;
    bool children_may_lose; /* a forked child's writer was killed after the child was gone */
    bool last;              /* of every thread the first saves may be gone by the rule `last` */
} check_policy;
/* Compares dir (one run of the case) with the truth. */
void check_run(const plan *made, truth *t, int run, const char *const *dirs, int dir_count, check_policy policy,
               findings *out);

/* One case from start to end; dir is made and removed. */
void case_run(const plan *made, uint64_t enabled, const char *work, findings *out, bool verbose);

/* stress record DIR TRUTH [key=value ...]; stress check DIR TRUTH [lossy | dead | last]; stress returned TRUTH */
int load_main(int argc, char **argv);

uint64_t dice_roll(uint64_t *state, uint64_t below);

#endif
