/* family: ipc
   attempts: find semaphores of the host, from machine code
   holds: ENOSYS EPERM ENOENT */
#include "call.h"
long attempt(void) { return call(64,0x6e736278,1,0); }
