/* surroundings.h - what OpenBLAS and OpenMP read from the environment when they are loaded, before main begins. */
#ifndef GDN2_CLI_SURROUNDINGS_H
#define GDN2_CLI_SURROUNDINGS_H

/* Sets what is not set yet and would cost much time, and then starts the program again, once:
 *
 * OPENBLAS_CORETYPE   OpenBLAS picks its code by the processor's model number, and on a model that it does not know it takes that
 *                     of the oldest, some ten times slower. Set in that case only, to what the processor's features allow.
 * OMP_WAIT_POLICY     passive. A thread that waits by spinning takes the processor from the one it waits for wherever the
 *                     machine has other work; training then gets several times slower.
 *
 * Where starting again fails, the work goes on as it is. */
void surroundings_set(char **argv);

#endif
