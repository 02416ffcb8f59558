#include "tensortap/tensortap.h"
int tap_writer_main(int ring_fd) { (void)ring_fd; return 2; }
