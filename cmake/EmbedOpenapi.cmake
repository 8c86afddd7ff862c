# cmake -DFILE=docs/openapi.json -DOUT=openapi_document.cpp -P EmbedOpenapi.cmake
#
# Compiles the description of the HTTP API into the program, which serves it at /openapi.json.
file(READ ${FILE} content)
file(WRITE ${OUT} "// Written by cmake/EmbedOpenapi.cmake.\n#include \"fathom/server/openapi_document.h\"\n\nnamespace fathom {\n\nstd::string_view openapi_document() {\n  static constexpr std::string_view kText = R\"OPENAPI(${content})OPENAPI\";\n  return kText;\n}\n\n}  // namespace fathom\n")
