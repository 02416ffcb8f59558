/* movement.c - operators that only bring elements to other places: joining, repeating, turning, padding, writing into a
 * part. Each is a prepare function that writes a program of moves. */
#include "engine/kernels/move.h"
#include "engine/kernels/move_lines.h"

#include "base/status.h"
#include "graph/shape_view.h"

#include <string.h>

static const unsigned char ZERO[16];

static tap_status begin(tap__call *call, tap_error *err)
{
    for (int i = 0; i < call->nin; i++)
        if (call->in[i].dtype != TAP_DTYPE_NONE && call->in[i].dtype != call->out[0].dtype)
            return tap__refuse(call, err);
    return tap__moves_begin(call, sizeof(tap__moves), err);
}

static tap_status done(tap__call *call)
{
    tap__moves_ready(call);
    return TAP_OK;
}

static int64_t int_attr(const tap__call *call, const char *name)
{
    return tap__call_attr(call, name)->i;
}

static tap__operand whole(const tap__call *call)
{
    tap__operand part = call->out[0];
    part.offset = 0;
    return part;
}

/* Copies `from` to the part `view` of output 0 (its offset says where it begins). */
static tap_status copy_to_part(tap__call *call, const tap__operand *view, int from, tap_error *err)
{
    const tap__operand *source = &call->in[from];
    TAP_TRY(tap__expect_sizes(call, source, view->ndim, view->size, err));
    TAP_TRY(tap__moves_copy(call, call->nin, view, from, source, err));
    tap__moves *moves = call->state;
    tap__move *move = &moves->list[moves->count - 1];
    move->to_offset = view->offset * (int64_t)move->item;
    return TAP_OK;
}

/* ---------------------------------------------------------------------------------------------- joining, repeating */

static bool is_nothing(const tap__operand *operand)
{
    return operand->ndim == 1 && operand->size[0] == 0;
}

static tap_status prepare_cat(tap__call *call, tap_error *err)
{
    const tap__operand *out = &call->out[0];
    int dim;
    TAP_TRY(tap__dim_place(call, int_attr(call, "dim"), out->ndim, &dim, err));
    TAP_TRY(begin(call, err));
    int64_t first = 0;
    for (int i = 0; i < call->nin; i++) {
        const tap__operand *in = &call->in[i];
        if (is_nothing(in))
            continue;
        tap__operand part = whole(call);
        if (in->ndim != out->ndim || in->ndim == 0)
            return tap__expect_sizes(call, in, out->ndim + 1, out->size, err);
        TAP_TRY(tap__view_slice(call, &part, dim, first, first + in->size[dim], 1, err));
        TAP_TRY(copy_to_part(call, &part, i, err));
        first += in->size[dim];
    }
    if (out->ndim && first != out->size[dim])
        return tap__expect_sizes(call, out, -1, NULL, err);
    return done(call);
}
TAP__MOVES_KERNEL(cat);

static tap_status prepare_stack(tap__call *call, tap_error *err)
{
    TAP_TRY(begin(call, err));
    for (int i = 0; i < call->nin; i++) {
        tap__operand part = whole(call);
        TAP_TRY(tap__view_select(call, &part, int_attr(call, "dim"), i, err));
        TAP_TRY(copy_to_part(call, &part, i, err));
    }
    return done(call);
}
TAP__MOVES_KERNEL(stack);

static tap_status prepare_repeat(tap__call *call, tap_error *err)
{
    const tap__operand *in = &call->in[0], *out = &call->out[0];
    const tap__attr *repeats = tap__call_attr(call, "repeats");
    int lead = out->ndim - in->ndim;
    TAP_TRY(begin(call, err));
    if (repeats->count != out->ndim || lead < 0)
        return tap__expect_sizes(call, in, repeats->count, out->size, err);
    tap__move *move;
    TAP_TRY(tap__moves_add(call, 1, 0, &move, err));
    for (int i = 0; i < out->ndim; i++) {
        int64_t size = i < lead ? 1 : in->size[i - lead];
        tap__move_loop(move, repeats->ints[i], out->stride[i] * size, 0);
        if (i >= lead)
            tap__move_loop(move, size, out->stride[i], in->stride[i - lead]);
    }
    return done(call);
}
TAP__MOVES_KERNEL(repeat);

/* --------------------------------------------------------------------------------------------- turning, padding */

/* A stretch of one dimension of the output and where it comes from. */
typedef struct stretch {
    int64_t size, to, from, step; /* elements from `from` on, by `step`; with `constant` none is read */
    bool constant;
} stretch;

enum { MAX_STRETCHES = 3 };

typedef struct stretches {
    int count[TAP_ENGINE_MAX_NDIM];
    stretch of[TAP_ENGINE_MAX_NDIM][MAX_STRETCHES];
} stretches;

static void add_stretch(stretches *all, int dim, stretch one)
{
    if (one.size > 0)
        all->of[dim][all->count[dim]++] = one;
}

/* One move for each choice of a stretch in every dimension. Choices that are constant from dimension `dim` on are one
 * move over whatever the later dimensions are. */
static tap_status add_boxes(tap__call *call, const stretches *all, const void *value, tap_error *err)
{
    const tap__operand *in = &call->in[0], *out = &call->out[0];
    int choice[TAP_ENGINE_MAX_NDIM] = {0};
    if (tap__operand_count(out) == 0)
        return TAP_OK;
    for (int i = 0; i < out->ndim; i++)
        if (all->count[i] == 0)
            return TAP_OK;
    for (;;) {
        tap__move *move;
        int constant = -1, last = out->ndim - 1;
        for (int i = 0; i < out->ndim && constant < 0; i++)
            if (all->of[i][choice[i]].constant)
                constant = i;
        TAP_TRY(tap__moves_add(call, call->nin, constant >= 0 ? TAP_MOVE_CONSTANT : 0, &move, err));
        if (constant >= 0)
            memcpy(move->constant, value, move->item);
        for (int i = 0; i < out->ndim; i++) {
            const stretch *one = &all->of[i][choice[i]];
            if (constant >= 0 && i > constant) {
                tap__move_loop(move, out->size[i], out->stride[i], 0);
                continue;
            }
            tap__move_loop(move, one->size, out->stride[i], constant >= 0 ? 0 : one->step * in->stride[i]);
            move->to_offset += one->to * out->stride[i] * (int64_t)move->item;
            if (constant < 0)
                move->from_offset += one->from * in->stride[i] * (int64_t)move->item;
        }
        if (constant >= 0)
            last = constant;
        while (last >= 0 && ++choice[last] == all->count[last])
            choice[last--] = 0;
        if (last < 0)
            return TAP_OK;
    }
}

static tap_status prepare_roll(tap__call *call, tap_error *err)
{
    const tap__operand *in = &call->in[0];
    const tap__attr *shifts = tap__call_attr(call, "shifts"), *dims = tap__call_attr(call, "dims");
    stretches all = {0};
    int64_t shift[TAP_ENGINE_MAX_NDIM] = {0};
    TAP_TRY(begin(call, err));
    TAP_TRY(tap__expect_sizes(call, &call->out[0], in->ndim, in->size, err));
    int64_t count = tap__operand_count(in);
    if (dims->count == 0 && in->ndim != 1) {
        /* as one long row */
        if (!tap__operand_is_contiguous(in) || !tap__operand_is_contiguous(&call->out[0]) || shifts->count != 1)
            return tap__refuse(call, err);
        int64_t by = count ? (shifts->ints[0] % count + count) % count : 0;
        for (int part = 0; part < 2; part++) {
            tap__move *move;
            TAP_TRY(tap__moves_add(call, 1, 0, &move, err));
            tap__move_loop(move, part ? by : count - by, 1, 1);
            *(part ? &move->from_offset : &move->to_offset) = (part ? count - by : by) * (int64_t)move->item;
        }
        return done(call);
    }
    for (int i = 0; i < shifts->count; i++) {
        int dim;
        TAP_TRY(tap__dim_place(call, dims->count ? dims->ints[i] : 0, in->ndim, &dim, err));
        int64_t size = in->ndim ? in->size[dim] : 1;
        if (size)
            shift[dim] = ((shift[dim] + shifts->ints[i]) % size + size) % size;
    }
    for (int i = 0; i < in->ndim; i++) {
        add_stretch(&all, i, (stretch){in->size[i] - shift[i], shift[i], 0, 1, false});
        add_stretch(&all, i, (stretch){shift[i], 0, in->size[i] - shift[i], 1, false});
    }
    TAP_TRY(add_boxes(call, &all, ZERO, err));
    return done(call);
}
TAP__MOVES_KERNEL(roll);

static tap_status prepare_flip(tap__call *call, tap_error *err)
{
    const tap__operand *in = &call->in[0];
    const tap__attr *dims = tap__call_attr(call, "dims");
    stretches all = {0};
    unsigned turned = 0;
    TAP_TRY(begin(call, err));
    TAP_TRY(tap__expect_sizes(call, &call->out[0], in->ndim, in->size, err));
    for (int i = 0; i < dims->count; i++) {
        int dim;
        TAP_TRY(tap__dim_place(call, dims->ints[i], in->ndim, &dim, err));
        turned |= 1u << dim;
    }
    for (int i = 0; i < in->ndim; i++)
        add_stretch(&all, i, turned & 1u << i ? (stretch){in->size[i], 0, in->size[i] - 1, -1, false}
                                              : (stretch){in->size[i], 0, 0, 1, false});
    TAP_TRY(add_boxes(call, &all, ZERO, err));
    return done(call);
}
TAP__MOVES_KERNEL(flip);

/* Amounts before and after dimension `dim`: pairs that start with the last dimension. */
static void pad_of(const tap__attr *pad, int ndim, int dim, int64_t *before, int64_t *after)
{
    int pair = ndim - 1 - dim;
    *before = 2 * pair + 1 < pad->count ? pad->ints[2 * pair] : 0;
    *after = 2 * pair + 1 < pad->count ? pad->ints[2 * pair + 1] : 0;
}

static tap_status prepare_pad(tap__call *call, char mode, const char *attr, tap_error *err)
{
    const tap__operand *in = &call->in[0], *out = &call->out[0];
    const tap__attr *pad = tap__call_attr(call, attr);
    _Alignas(8) unsigned char value[16] = {0};
    stretches all = {0};
    TAP_TRY(begin(call, err));
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    for (int i = 0; i < in->ndim; i++) {
        int64_t before, after;
        pad_of(pad, in->ndim, i, &before, &after);
        sizes[i] = in->size[i] + before + after;
        int64_t low = before < 0 ? -before : 0, high = in->size[i] + (after < 0 ? after : 0);
        int64_t far = in->size[i] - 1;
        if (mode != 'c' && (before || after) &&
            (before < 0 || after < 0 || far < 0 || (mode == 'r' && (before > far || after > far))))
            return tap__refuse(call, err);
        if (high < low) /* more taken away than there is: torch says so */
            return tap__refuse(call, err);
        stretch first = {before, 0, mode == 'r' ? before : 0, mode == 'r' ? -1 : 0, mode == 'c'};
        stretch last = {after, sizes[i] - after, mode == 'r' ? far - 1 : far, mode == 'r' ? -1 : 0, mode == 'c'};
        add_stretch(&all, i, first);
        add_stretch(&all, i, (stretch){high - low, before > 0 ? before : 0, low, 1, false});
        add_stretch(&all, i, last);
    }
    TAP_TRY(tap__expect_sizes(call, out, in->ndim, sizes, err));
    if (mode == 'c')
        tap__number_store(&tap__call_attr(call, "value")->scalar, out->dtype, value);
    TAP_TRY(add_boxes(call, &all, value, err));
    return done(call);
}

static tap_status prepare_constant_pad(tap__call *call, tap_error *err)
{
    return prepare_pad(call, 'c', "pad", err);
}
TAP__MOVES_KERNEL(constant_pad);

static tap_status prepare_reflection_pad(tap__call *call, tap_error *err)
{
    return prepare_pad(call, 'r', "padding", err);
}
TAP__MOVES_KERNEL(reflection_pad);

static tap_status prepare_replication_pad(tap__call *call, tap_error *err)
{
    return prepare_pad(call, 'e', "padding", err);
}
TAP__MOVES_KERNEL(replication_pad);

/* The gradient of a border: the inside is copied, then every other box is added to where it was read from, one after
 * another, since they meet there. */
static tap_status add_boxes_back(tap__call *call, const stretches *all, tap_error *err)
{
    const tap__operand *grad = &call->in[0], *out = &call->out[0];
    int choice[TAP_ENGINE_MAX_NDIM] = {0};
    for (int i = 0; i < out->ndim; i++)
        if (all->count[i] == 0)
            return TAP_OK;
    for (bool inside = true;; inside = false) {
        tap__move *move;
        bool others = false;
        for (int i = 0; i < out->ndim; i++)
            others = others || all->of[i][choice[i]].constant;
        if (inside || others) {
            TAP_TRY(tap__moves_add(call, call->nin, 0, &move, err));
            move->add = inside ? TAP_DTYPE_NONE : out->dtype;
            for (int i = 0; i < out->ndim; i++) {
                const stretch *one = inside ? &all->of[i][all->count[i] - 1] : &all->of[i][choice[i]];
                tap__move_loop(move, one->size, one->step * out->stride[i], grad->stride[i]);
                move->dims[i].serial = one->step == 0 && one->size > 1;
                move->to_offset += one->from * out->stride[i] * (int64_t)move->item;
                move->from_offset += one->to * grad->stride[i] * (int64_t)move->item;
            }
            tap__moves_next_phase(call);
        }
        if (inside)
            continue;
        int last = out->ndim - 1;
        while (last >= 0 && ++choice[last] == all->count[last])
            choice[last--] = 0;
        if (last < 0)
            return TAP_OK;
    }
}

/* The stretch in the middle comes last; `constant` marks the two at the edges. */
static tap_status prepare_pad_backward(tap__call *call, char mode, tap_error *err)
{
    const tap__operand *grad = &call->in[0], *out = &call->out[0];
    const tap__attr *pad = tap__call_attr(call, "padding");
    stretches all = {0};
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    if (grad->dtype != out->dtype || !tap__lines_add(out->dtype))
        return tap__refuse(call, err);
    for (int i = 0; i < out->ndim; i++) {
        int64_t before, after, far = out->size[i] - 1;
        pad_of(pad, out->ndim, i, &before, &after);
        if ((before || after) &&
            (before < 0 || after < 0 || far < 0 || (mode == 'r' && (before > far || after > far))))
            return tap__refuse(call, err);
        sizes[i] = out->size[i] + before + after;
        int64_t step = mode == 'r' ? -1 : 0;
        add_stretch(&all, i, (stretch){before, 0, mode == 'r' ? before : 0, step, true});
        add_stretch(&all, i, (stretch){after, sizes[i] - after, mode == 'r' ? far - 1 : far, step, true});
        add_stretch(&all, i, (stretch){out->size[i], before, 0, 1, false});
    }
    TAP_TRY(tap__expect_sizes(call, grad, out->ndim, sizes, err));
    TAP_TRY(tap__moves_begin(call, sizeof(tap__moves), err));
    TAP_TRY(add_boxes_back(call, &all, err));
    return done(call);
}

static tap_status prepare_reflection_pad_backward(tap__call *call, tap_error *err)
{
    return prepare_pad_backward(call, 'r', err);
}
TAP__MOVES_KERNEL(reflection_pad_backward);

static tap_status prepare_replication_pad_backward(tap__call *call, tap_error *err)
{
    return prepare_pad_backward(call, 'e', err);
}
TAP__MOVES_KERNEL(replication_pad_backward);

static tap_status prepare_rot90(tap__call *call, tap_error *err)
{
    const tap__operand *in = &call->in[0], *out = &call->out[0];
    const tap__attr *dims = tap__call_attr(call, "dims");
    int64_t turns = (int_attr(call, "k") % 4 + 4) % 4;
    int a, b;
    TAP_TRY(begin(call, err));
    if (dims->count != 2)
        return tap__refuse(call, err);
    TAP_TRY(tap__dim_place(call, dims->ints[0], in->ndim, &a, err));
    TAP_TRY(tap__dim_place(call, dims->ints[1], in->ndim, &b, err));
    tap__move *move;
    TAP_TRY(tap__moves_add(call, 1, 0, &move, err));
    for (int i = 0; i < in->ndim; i++) {
        /* the input's dimension that runs along the output's dimension i, and whether backwards */
        int from = turns % 2 == 0 ? i : i == a ? b : i == b ? a : i;
        bool back = (turns == 2 && (i == a || i == b)) || (turns == 1 && i == a) || (turns == 3 && i == b);
        if (out->ndim != in->ndim || out->size[i] != in->size[from])
            return tap__expect_sizes(call, out, -1, NULL, err);
        tap__move_loop(move, in->size[from], out->stride[i], back ? -in->stride[from] : in->stride[from]);
        if (back)
            move->from_offset += (in->size[from] - 1) * in->stride[from] * (int64_t)move->item;
    }
    return done(call);
}
TAP__MOVES_KERNEL(rot90);

/* --------------------------------------------------------------------------------------------- writing into a part */

/* Output 0 is input 0 with a part replaced by input 1; or zeros with a part that is input 0. */
static tap_status replace_part(tap__call *call, const tap__operand *part, tap_error *err)
{
    if (call->nin == 2) {
        TAP_TRY(tap__expect_sizes(call, &call->out[0], call->in[0].ndim, call->in[0].size, err));
        TAP_TRY(tap__moves_copy(call, call->nin, &call->out[0], 0, &call->in[0], err));
    } else {
        TAP_TRY(tap__moves_fill(call, call->nin, &call->out[0], ZERO, err));
    }
    tap__moves_next_phase(call);
    TAP_TRY(copy_to_part(call, part, call->nin - 1, err));
    return done(call);
}

static tap_status prepare_select_scatter(tap__call *call, tap_error *err)
{
    tap__operand part = whole(call);
    TAP_TRY(begin(call, err));
    TAP_TRY(tap__view_select(call, &part, int_attr(call, "dim"), int_attr(call, "index"), err));
    return replace_part(call, &part, err);
}
TAP__MOVES_KERNEL(select_scatter);

static tap_status prepare_slice_scatter(tap__call *call, tap_error *err)
{
    const tap__attr *start = tap__call_attr(call, "start"), *end = tap__call_attr(call, "end");
    tap__operand part = whole(call);
    TAP_TRY(begin(call, err));
    TAP_TRY(tap__view_slice(call, &part, int_attr(call, "dim"), start->present ? start->i : 0,
                            end->present ? end->i : INT64_MAX, int_attr(call, "step"), err));
    return replace_part(call, &part, err);
}
TAP__MOVES_KERNEL(slice_scatter);

static tap_status prepare_diagonal_scatter(tap__call *call, tap_error *err)
{
    tap__operand part = whole(call);
    TAP_TRY(begin(call, err));
    TAP_TRY(tap__view_diagonal(call, &part, int_attr(call, "offset"), int_attr(call, "dim1"), int_attr(call, "dim2"),
                               err));
    return replace_part(call, &part, err);
}
TAP__MOVES_KERNEL(diagonal_scatter);

static tap_status prepare_diag_embed(tap__call *call, tap_error *err)
{
    tap__operand part = whole(call);
    TAP_TRY(begin(call, err));
    TAP_TRY(tap__view_diagonal(call, &part, int_attr(call, "offset"), int_attr(call, "dim1"), int_attr(call, "dim2"),
                               err));
    return replace_part(call, &part, err);
}
TAP__MOVES_KERNEL(diag_embed);

/* ----------------------------------------------------------------------------------------------------- shuffling */

/* pixel_shuffle (forth) and pixel_unshuffle: [..., C r r, H, W] and [..., C, H r, W r]. */
static tap_status shuffle_pixels(tap__call *call, const tap__operand *deep, const tap__operand *flat, int64_t factor,
                                 bool forth, tap_error *err)
{
    int ndim = deep->ndim, lead = ndim - 3;
    if (lead < 0 || flat->ndim != ndim || factor < 1)
        return tap__expect_sizes(call, flat, -1, NULL, err);
    int64_t sizes[TAP_ENGINE_MAX_NDIM];
    memcpy(sizes, flat->size, sizeof sizes);
    sizes[lead] = flat->size[lead] * factor * factor;
    sizes[lead + 1] = flat->size[lead + 1] / factor;
    sizes[lead + 2] = flat->size[lead + 2] / factor;
    TAP_TRY(tap__expect_sizes(call, deep, ndim, sizes, err));
    tap__move *move;
    TAP_TRY(tap__moves_add(call, 1, 0, &move, err));
    int64_t channel = deep->stride[lead], row = flat->stride[lead + 1], column = flat->stride[lead + 2];
    struct {
        int64_t size, deep, flat;
    } loops[] = {
        {flat->size[lead], channel * factor * factor, flat->stride[lead]},
        {factor, channel * factor, row},
        {factor, channel, column},
        {deep->size[lead + 1], deep->stride[lead + 1], row * factor},
        {deep->size[lead + 2], deep->stride[lead + 2], column * factor},
    };
    for (int i = 0; i < lead; i++)
        tap__move_loop(move, flat->size[i], forth ? flat->stride[i] : deep->stride[i],
                       forth ? deep->stride[i] : flat->stride[i]);
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++)
        tap__move_loop(move, loops[i].size, forth ? loops[i].flat : loops[i].deep,
                       forth ? loops[i].deep : loops[i].flat);
    return done(call);
}

static tap_status prepare_pixel_shuffle(tap__call *call, tap_error *err)
{
    TAP_TRY(begin(call, err));
    return shuffle_pixels(call, &call->in[0], &call->out[0], int_attr(call, "upscale_factor"), true, err);
}
TAP__MOVES_KERNEL(pixel_shuffle);

static tap_status prepare_pixel_unshuffle(tap__call *call, tap_error *err)
{
    TAP_TRY(begin(call, err));
    return shuffle_pixels(call, &call->out[0], &call->in[0], int_attr(call, "downscale_factor"), false, err);
}
TAP__MOVES_KERNEL(pixel_unshuffle);

static tap_status prepare_channel_shuffle(tap__call *call, tap_error *err)
{
    const tap__operand *in = &call->in[0], *out = &call->out[0];
    int64_t groups = int_attr(call, "groups");
    TAP_TRY(begin(call, err));
    TAP_TRY(tap__expect_sizes(call, out, in->ndim, in->size, err));
    if (in->ndim < 2 || groups < 1 || in->size[1] % groups)
        return tap__refuse(call, err);
    int64_t each = in->size[1] / groups;
    tap__move *move;
    TAP_TRY(tap__moves_add(call, 1, 0, &move, err));
    for (int i = 0; i < in->ndim; i++) {
        if (i != 1) {
            tap__move_loop(move, in->size[i], out->stride[i], in->stride[i]);
            continue;
        }
        tap__move_loop(move, each, out->stride[1] * groups, in->stride[1]);
        tap__move_loop(move, groups, out->stride[1], in->stride[1] * each);
    }
    return done(call);
}
TAP__MOVES_KERNEL(channel_shuffle);

/* ----------------------------------------------------------------------------------------------------- triangles */

typedef struct triangle {
    const tap__call *call;
    const char *in;
    char *out;
    int64_t item, diagonal;
    bool upper;
} triangle;

/* Rows [begin, end) of all matrices, one after another. */
static void triangle_rows(void *user, int64_t begin_row, int64_t end_row)
{
    const triangle *self = user;
    const tap__operand *in = &self->call->in[0], *out = &self->call->out[0];
    int ndim = out->ndim;
    int64_t rows = out->size[ndim - 2], columns = out->size[ndim - 1], item = self->item;
    int64_t in_step = in->stride[ndim - 1] * item, out_step = out->stride[ndim - 1] * item;
    for (int64_t at = begin_row; at < end_row; at++) {
        int64_t row = at % rows, rest = at / rows;
        const char *from = self->in + row * in->stride[ndim - 2] * item;
        char *to = self->out + row * out->stride[ndim - 2] * item;
        for (int i = ndim - 3; i >= 0; i--) {
            from += rest % out->size[i] * in->stride[i] * item;
            to += rest % out->size[i] * out->stride[i] * item;
            rest /= out->size[i];
        }
        /* lower: columns up to row + diagonal stay; upper: from there on */
        int64_t edge = row + self->diagonal + (self->upper ? 0 : 1);
        edge = edge < 0 ? 0 : edge > columns ? columns : edge;
        int64_t first = self->upper ? edge : 0, last = self->upper ? columns : edge;
        if (in_step == item && out_step == item) {
            memset(to, 0, (size_t)(first * item));
            memcpy(to + first * item, from + first * item, (size_t)((last - first) * item));
            memset(to + last * item, 0, (size_t)((columns - last) * item));
            continue;
        }
        for (int64_t i = 0; i < columns; i++)
            memcpy(to + i * out_step, i >= first && i < last ? from + i * in_step : (const char *)ZERO, (size_t)item);
    }
}

static tap_status prepare_triangle(tap__call *call, tap_error *err)
{
    const tap__operand *in = &call->in[0];
    if (in->dtype != call->out[0].dtype || in->ndim < 2)
        return tap__refuse(call, err);
    return tap__expect_sizes(call, &call->out[0], in->ndim, in->size, err);
}

static tap_status run_triangle(const tap__call *call, void *const *data, bool upper)
{
    const tap__operand *out = &call->out[0];
    int64_t columns = out->size[out->ndim - 1], count = tap__operand_count(out);
    triangle self = {call, data[0], data[1], (int64_t)tap__item_bytes(out->dtype), int_attr(call, "diagonal"), upper};
    if (count)
        tap__parallel(call->threads, count / columns, 1 + 32768 / columns, TAP_ANY_LENGTH, triangle_rows, &self);
    return TAP_OK;
}

static tap_status run_tril(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    return run_triangle(call, data, false);
}
const tap__kernel tap__kernel_tril = {prepare_triangle, run_tril, NULL};

static tap_status run_triu(const tap__call *call, void *const *data, tap_error *err)
{
    (void)err;
    return run_triangle(call, data, true);
}
const tap__kernel tap__kernel_triu = {prepare_triangle, run_triu, NULL};
