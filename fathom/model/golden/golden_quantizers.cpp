// The group quantizers against recorded bytes, scales and values: exact.
#include "fathom/model/golden/golden_case.h"
#include "fathom/tensor/row_format.h"

namespace fathom {
namespace {

void compare_rows(const std::map<std::string, GoldenTensor>& tensors, const std::string& name, RowFormat format,
                  const Report& report) {
  const GoldenTensor& input = tensors.at("input");
  const size_t rows = size_t(input.shape[0]), channels = size_t(input.shape[1]);
  const size_t code_bytes = format == RowFormat::q8 ? channels : channels / 2;
  std::vector<float> codes, scales, values;
  for (size_t r = 0; r < rows; ++r) {
    const std::span<const float> row(input.values.data() + r * channels, channels);
    std::vector<uint8_t> bytes(size_t(row_bytes(format, int64_t(channels))));
    encode_row(format, row, bytes.data());
    codes.insert(codes.end(), bytes.begin(), bytes.begin() + long(code_bytes));
    scales.insert(scales.end(), bytes.begin() + long(code_bytes), bytes.end());
    std::vector<float> back(channels);
    decode_row(format, bytes.data(), back);
    values.insert(values.end(), back.begin(), back.end());
  }
  report(compare_stage(name + ".bytes", codes, tensors.at(name + ".bytes").values, int64_t(code_bytes), {}));
  report(compare_stage(name + ".scale", scales, tensors.at(name + ".scale").values, 1, {}));
  report(compare_stage(name + ".value", values, tensors.at(name + ".value").values, int64_t(channels), {}));
}

}  // namespace

void run_quantizer_case(const std::map<std::string, GoldenTensor>& tensors, const Report& report) {
  compare_rows(tensors, "fp8_group32", RowFormat::q8, report);
  compare_rows(tensors, "mxfp4_group32", RowFormat::q4i, report);
  compare_rows(tensors, "kv_fp4_group16", RowFormat::q4k, report);
}

}  // namespace fathom
