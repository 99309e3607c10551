/* family: memory
   attempts: a second system call interface, from machine code
   holds: ENOSYS EPERM */
#include "call.h"
long attempt(void) { return call(425,8,0); }
