/* graph_alone.c - builds and prints a graph with the objects of base, tensor and graph alone: that it links is the test.
 * Who only looks at graphs takes neither kernels nor the recorder. */
#include <stdio.h>

#include "graph/graph.h"

int main(void)
{
    tap_graph *graph;
    tap_error err;
    int32_t x, y;
    tap__node *node;
    if (tap_graph_new("alone", &graph, &err) != TAP_OK)
        return 1;
    tap_sym size = tap_graph_symbol(graph, "s0"), one = tap_graph_const(graph, 1);
    tap_spec spec = {.type = TAP_SPEC_TENSOR, .dtype = TAP_F32, .ndim = 1, .sizes = &size, .strides = &one,
                     .offset = tap_graph_const(graph, 0)};
    tap_node_desc desc;
    tap_node_desc_init(&desc);
    desc.name = "sum", desc.outputs = &spec, desc.noutputs = 1;
    if (tap_graph_input(graph, "x", &spec, &x, &err) != TAP_OK ||
        tap__graph_node(graph, tap__op_find("ReduceSum"), &desc, &node, &err) != TAP_OK)
        return 1;
    y = node->first_value;
    tap_node_info info;
    tap_node_info_init(&info);
    tap_op_info op;
    tap_op_info_init(&op);
    bool right = tap_graph_output(graph, &y, 1, &err) == TAP_OK && tap_graph_node(graph, 0, &info) == TAP_OK &&
                 tap_op_describe(node->op->row, &op) == TAP_OK;
    if (right)
        printf("%s is %s, a %s: %s\n", info.name, info.op, info.op_kind, op.doc);
    tap_graph_free(graph);
    return right ? 0 : 1;
}
