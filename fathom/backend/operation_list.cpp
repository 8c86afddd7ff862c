#include "fathom/backend/operation_list.h"

namespace fathom {

std::vector<OperationEntry> list_operations(const Operations& table) {
  std::vector<OperationEntry> list;
  for_each_operation([&]<auto entry>(std::string_view name) {
    list.push_back({name, reinterpret_cast<void (*)()>(table.*entry)});
  });
  return list;
}

}  // namespace fathom
