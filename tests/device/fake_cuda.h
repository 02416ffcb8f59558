/* fake_cuda.h - what tests ask of the driver that is theirs, beyond what a driver does. A test program loads the same library and
 * finds these by name. */
#ifndef TAP_TESTS_FAKE_CUDA_H
#define TAP_TESTS_FAKE_CUDA_H

#include <stdint.h>

struct fake_stream; /* a CUstream */
struct fake_graph;

struct fake_stream *fake_stream_create(void);
void fake_stream_wait(struct fake_stream *stream);
/* After everything in it. */
void fake_stream_destroy(struct fake_stream *stream);

void fake_capture_begin(struct fake_stream *stream);
struct fake_graph *fake_capture_end(struct fake_stream *stream);
void fake_replay(const struct fake_graph *graph, struct fake_stream *stream);
void fake_graph_free(struct fake_graph *graph);

/* The n-th call from now on that can fail does. 0: none. */
void fake_fail_at(int n);
/* Everything in a stream is preceded by a wait of up to so many microseconds. */
void fake_delay(int us);
/* Memory, registrations and modules that were taken and not given back. */
int fake_balance(void);

/* What cuStreamIsCapturing says of the legacy stream from now on. */
void fake_capturing(int result, int status);
/* How often a thread made itself relaxed, and the mode of the calling thread. */
int fake_relaxed(void);
int fake_mode(void);

#endif
