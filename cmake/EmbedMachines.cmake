# cmake -DFOLDER=bench/machines -DOUT=machine_files.cpp -P EmbedMachines.cmake
#
# Compiles the machine descriptions into the program: `fathom plan --gpus 4xH200` works without the source tree.
file(GLOB files ${FOLDER}/*.toml)
list(SORT files)
set(text "// Written by cmake/EmbedMachines.cmake.\n#include \"fathom/cli/hardware.h\"\n\nnamespace fathom::cli {\n\nstd::span<const MachineFile> machine_files() {\n  static constexpr MachineFile kFiles[] = {\n")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  file(READ ${file} content)
  string(APPEND text "      {\"${name}\", R\"TOML(${content})TOML\"},\n")
endforeach()
string(APPEND text "  };\n  return kFiles;\n}\n\n}  // namespace fathom::cli\n")
file(WRITE ${OUT} "${text}")
