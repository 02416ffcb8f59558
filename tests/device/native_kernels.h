/* native_kernels.h - the device's kernels run by threads of the process: a block is as many threads as it is said to have, blocks
 * follow one another. */
#ifndef TAP_TESTS_NATIVE_KERNELS_H
#define TAP_TESTS_NATIVE_KERNELS_H

#include "device/kernels/room.h"

void native_gate(const tap_k_gate *gate);
void native_leaf(const tap_k_tap *tap, unsigned blocks, unsigned threads);

#endif
