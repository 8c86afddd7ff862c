// fathom/cli/main.cpp
// The program `fathom`. Everything is in program.cpp.
#include "fathom/cli/program.h"

int main(int argc, char** argv) { return fathom::cli::run({argv + 1, argv + argc}); }
