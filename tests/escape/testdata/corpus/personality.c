/* family: memory
   attempts: switch off address randomisation, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(135,0x40000); }
