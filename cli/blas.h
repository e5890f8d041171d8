/* blas.h - OpenBLAS on processors that are younger than it. */
#ifndef GDN2_CLI_BLAS_H
#define GDN2_CLI_BLAS_H

/* OpenBLAS picks its code by the processor's model number when it is loaded, and on a model that it does not know it takes that
 * of the oldest, some ten times slower. If that has happened here, starts the program again with OPENBLAS_CORETYPE set to what
 * the processor's features allow; the variable, once set by anybody, is left alone. */
void blas_wake(char **argv);

#endif
