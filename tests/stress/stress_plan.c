/* stress_plan.c - what a seed means: the options of the recorders and a list of operations with the fault among them. */
#include "stress/stress.h"

#include <stdio.h>
#include <string.h>

const char *const LAYOUT_NAMES[LAYOUT_COUNT] = {"native",    "msprobe",   "msprobe_modules", "torchair",
                                                "mindspore", "torch_npu", "troubleshooter"};

const fault_info FAULTS[FAULT_COUNT] = {
#define X(id, name, root, loses) {name, root, loses},
    FAULT_MAP(X)
#undef X
};

const char *const FINDING_TEXTS[FINDING_COUNT] = {
#define X(id, text) text,
    FINDING_MAP(X)
#undef X
};

enum { KILL_OPS = 16 };

static const char *const OP_NAMES[] = {"open", "save",  "nested", "grad",  "burst", "step",
                                       "flush", "fork", "close",  "fault", "pause"};
static const char *const MODE_NAMES[] = {"new", "append", "replace"};

bool plan_is_native(const plan *p)
{
    return p->layout == 0;
}

/* Elements of four bytes: mostly small, now and then up to three rings. */
static uint32_t pick_elements(const plan *p, uint64_t *dice)
{
    uint64_t ring = p->ring_bytes / 4;
    switch (dice_roll(dice, 16)) {
    case 0: return 0;
    case 1: return (uint32_t)(1 + dice_roll(dice, ring * 3));
    case 2: return (uint32_t)(1 + dice_roll(dice, ring));
    case 3:
    case 4: return (uint32_t)(1 + dice_roll(dice, 100000));
    default: return (uint32_t)(1 + dice_roll(dice, 2000));
    }
}

static op *add(plan *p, op_kind kind)
{
    if (p->count >= MAX_OPS - 3)
        return &p->ops[MAX_OPS - 1]; /* room for the last close; nobody looks at it */
    op *o = &p->ops[p->count++];
    memset(o, 0, sizeof *o);
    o->kind = kind;
    return o;
}

static void add_value(plan *p, uint64_t *dice)
{
    static const op_kind KINDS[] = {OP_SAVE, OP_SAVE, OP_SAVE, OP_SAVE, OP_SAVE, OP_NESTED, OP_NESTED, OP_GRAD,
                                    OP_GRAD, OP_BURST, OP_STEP, OP_STEP, OP_FLUSH, OP_FORK, OP_PAUSE, OP_SAVE};
    op *o = add(p, KINDS[dice_roll(dice, sizeof KINDS / sizeof KINDS[0])]);
    o->elements = pick_elements(p, dice);
    o->strided = dice_roll(dice, 4) == 0;
    o->leaves = 1 + (uint32_t)dice_roll(dice, MAX_LEAVES);
    o->threads = 2 + (uint32_t)dice_roll(dice, MAX_THREADS - 1);
    o->count = 1 + (uint32_t)dice_roll(dice, 40);
    o->how = (int)dice_roll(dice, 3);
    o->micros = (uint32_t)dice_roll(dice, 30000);
}

static void add_fault(plan *p, uint64_t *dice, fault_kind kind)
{
    op *o = add(p, OP_FAULT);
    o->fault = kind;
    o->wait = dice_roll(dice, 2);
    o->micros = (uint32_t)dice_roll(dice, 40000);
}

static void add_open(plan *p, uint64_t *dice, bool first)
{
    op *o = add(p, OP_OPEN);
    o->mode = first ? (tap_open_mode)dice_roll(dice, 3) : TAP_OPEN_APPEND + (tap_open_mode)(dice_roll(dice, 4) == 0);
}

static void make_options(plan *p, uint64_t *dice)
{
    p->ranks = dice_roll(dice, 4) == 0 || p->fault == FAULT_PID_SPACE ? 2 : 1;
    p->ring_bytes = 1u << (20 + dice_roll(dice, 2));
    p->segment_bytes = dice_roll(dice, 3) ? 1u << 30 : dice_roll(dice, 2) ? 1u << 20 : 1u << 14;
    p->durability = dice_roll(dice, 6) == 0 ? 1 + (int)dice_roll(dice, 2) : 0;
    p->file_ring = plan_is_native(p) && dice_roll(dice, 4) == 0;
    p->thread_writer = dice_roll(dice, 12) == 0;
    p->stall_ms = 1500;
    bool disk = p->fault == FAULT_DISK_FULL || p->fault == FAULT_SPACE_BACK;
    p->disk_bytes = disk ? (8 + dice_roll(dice, 24)) << 20 : 0;
}

/* Killed at a random moment of its life, from before the open until after the close, all as likely: see stress.h. */
static void plan_kill(plan *p, uint64_t number)
{
    static const fault_kind KINDS[] = {FAULT_KILL_PRODUCER, FAULT_KILL_PRODUCER, FAULT_KILL_WRITER, FAULT_KILL_BOTH};
    uint64_t dice = number * 0x9FB21C651E98DF25u + 1;
    p->layout = (int)(number % LAYOUT_COUNT);
    p->asynchronous = number / LAYOUT_COUNT % 2;
    p->fault = KINDS[dice_roll(&dice, sizeof KINDS / sizeof KINDS[0])];
    p->reopened = TAP_OPEN_APPEND + (tap_open_mode)dice_roll(&dice, 2);
    make_options(p, &dice);
    add_fault(p, &dice, p->fault);
    p->ops[0].wait = false;
    p->ops[0].micros = (uint32_t)dice_roll(&dice, 1000u << dice_roll(&dice, 7)); /* most lives are short */
    add_open(p, &dice, true);
    for (int i = 0; i < KILL_OPS; i++)
        add_value(p, &dice);
    p->ops[p->count++] = (op){.kind = OP_CLOSE};
}

void plan_make(plan *p, uint64_t seed)
{
    memset(p, 0, sizeof *p);
    p->seed = seed;
    if (seed >= KILL_CASES) {
        plan_kill(p, seed - KILL_CASES);
        return;
    }
    p->layout = (int)(seed % LAYOUT_COUNT);
    p->fault = (fault_kind)(seed / LAYOUT_COUNT % FAULT_COUNT);
    p->asynchronous = seed / LAYOUT_COUNT / FAULT_COUNT % 2;
    uint64_t dice = seed * 0xD1B54A32D192ED03u + 1;
    make_options(p, &dice);
    int before = 2 + (int)dice_roll(&dice, 12), after = (int)dice_roll(&dice, 12);
    add_open(p, &dice, true);
    for (int i = 0; i < before; i++)
        add_value(p, &dice);
    if (p->fault == FAULT_NONE && dice_roll(&dice, 2) == 0) { /* another round on the same directory */
        add(p, OP_CLOSE);
        add_open(p, &dice, false);
    }
    if (p->fault != FAULT_NONE && p->fault != FAULT_NO_PROC)
        add_fault(p, &dice, p->fault);
    if (p->fault == FAULT_NO_FDS || (p->fault == FAULT_NO_PROC && dice_roll(&dice, 2)))
        add_fault(p, &dice, FAULT_KILL_WRITER);
    if (p->fault == FAULT_PID_SPACE && dice_roll(&dice, 2))
        add_fault(p, &dice, dice_roll(&dice, 2) ? FAULT_KILL_WRITER : FAULT_KILL_PRODUCER);
    for (int i = 0; i < after; i++)
        add_value(p, &dice);
    if (p->fault == FAULT_SPACE_BACK) {
        op *pause = add(p, OP_PAUSE);
        add_fault(p, &dice, FAULT_NONE); /* undoes it */
        pause->micros = 20000;
        for (int i = 0; i < 4; i++)
            add_value(p, &dice);
    }
    p->ops[p->count++] = (op){.kind = OP_CLOSE};
}

static void op_print(const op *o)
{
    printf("%s", OP_NAMES[o->kind]);
    switch (o->kind) {
    case OP_OPEN: printf(" %s", MODE_NAMES[o->mode]); break;
    case OP_SAVE: printf(" %u elements%s", o->elements, o->strided ? " strided" : ""); break;
    case OP_NESTED: printf(" %s of %u, %u elements", o->how == 0 ? "list" : o->how == 1 ? "dict" : "tuple", o->leaves,
                           o->elements); break;
    case OP_GRAD: printf(" %u elements, %s", o->elements, o->how == 0 ? "now" : o->how == 1 ? "at the end" : "never");
        break;
    case OP_BURST: printf(" %u threads x %u", o->threads, o->count); break;
    case OP_FORK: printf(" %u saves, then %s", o->count % 8 + 1, o->how == 0 ? "close" : o->how == 1 ? "_exit" : "SIGKILL");
        break;
    case OP_FAULT: printf(" %s, %s, after %u us", o->fault ? FAULTS[o->fault].name : "undone",
                          o->wait ? "waited for" : "while going on", o->micros); break;
    case OP_PAUSE: printf(" %u us", o->micros); break;
    default: break;
    }
    printf("\n");
}

void plan_print(const plan *p)
{
    printf("  layout %s%s, %d rank%s, ring %llu%s, segments %llu, durability %d%s, fault: %s\n", LAYOUT_NAMES[p->layout],
           p->asynchronous ? " asynchronous" : "", p->ranks, p->ranks > 1 ? "s" : "", (unsigned long long)p->ring_bytes,
           p->file_ring ? " in a file" : "", (unsigned long long)p->segment_bytes, p->durability,
           p->thread_writer ? ", writer a thread" : "", FAULTS[p->fault].name);
    if (p->disk_bytes)
        printf("  disk of %llu bytes\n", (unsigned long long)p->disk_bytes);
    for (int i = 0; i < p->count; i++) {
        printf("  %2d ", i);
        op_print(&p->ops[i]);
    }
}
