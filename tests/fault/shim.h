/* shim.h - what a test that is linked with shim.c may set besides its environment. */
#ifndef TAP_TESTS_SHIM_H
#define TAP_TESTS_SHIM_H

#include <stdatomic.h>

extern atomic_long shim_written; /* bytes so far, as SHIM_FULL and SHIM_FAIL count them */

#endif
