/* writer_main.h - how the command becomes a writer. Not installed and not exported: the command is linked with the library
 * it was built with. */
#ifndef TENSORTAP_PRIVATE_WRITER_MAIN_H
#define TENSORTAP_PRIVATE_WRITER_MAIN_H

/* The body of `tensortap __writer`: drains the ring open at descriptor fd until its producer ends; the exit status. */
int tap__writer_main(int ring_fd);

#endif
