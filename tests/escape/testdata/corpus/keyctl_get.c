/* family: keyrings
   attempts: ask for the id of the session keyring, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(250,-3,0); }
