/* writer_main.h - how the command becomes a writer. Not installed and not exported: the command is linked with the library
 * it was built with. */
#ifndef TENSORTAP_PRIVATE_WRITER_MAIN_H
#define TENSORTAP_PRIVATE_WRITER_MAIN_H

/* The body of `tensortap __writer RING DIRECTORY TALLY`: drains the ring open at ring_fd, whose counts are in the page open
 * at tally_fd (-1: in the ring), into files below the directory open at dir_fd, until its producer ends; the exit status. */
int tap__writer_main(int ring_fd, int dir_fd, int tally_fd);

#endif
