/* threads.h - how many threads the framework lets a kernel use. */
#ifndef TAP_ENGINE_THREADS_H
#define TAP_ENGINE_THREADS_H

int tap__threads(void);

#endif
