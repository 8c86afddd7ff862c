// What xgrammar says and where it gives up: it was compiled to ask us (XGRAMMAR_LOG_CUSTOMIZE). Its warnings are about
// what grammar_of has refused before; its failures are exceptions, which every call of ours turns into an Error.
#include <stdexcept>
#include <string>

namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message);
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) { throw std::runtime_error(message); }
void LogMessageImpl(const std::string&, int, int, const std::string&) {}

}  // namespace xgrammar
