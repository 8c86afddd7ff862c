// One prefill, every stage compared, then decode steps.
#include <algorithm>

#include "fathom/model/golden/golden_case.h"
#include "fathom/model/golden/tolerances.h"
#include "fathom/tensor/number_formats.h"

namespace fathom {
namespace {

std::vector<float> values_of(AnyView view) {
  std::vector<float> out;
  out.reserve(size_t(view.rows * view.cols));
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t i = 0; i < view.cols; ++i) {
      switch (view.dtype) {
        case DType::bf16: out.push_back(bf16_to_float(view.as<uint16_t>()(r, i))); break;
        case DType::i32: out.push_back(float(view.as<int32_t>()(r, i))); break;
        case DType::i64: out.push_back(float(view.as<int64_t>()(r, i))); break;
        default: out.push_back(view.as<float>()(r, i));
      }
    }
  }
  return out;
}

struct Recorded {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;
};

// Rows of what was recorded, picked by absolute position: the record holds the last `rows` positions of `length`.
std::vector<float> rows_at(const Recorded& record, int64_t length, const std::vector<int64_t>& positions) {
  std::vector<float> out;
  for (const int64_t p : positions) {
    const int64_t r = p - (length - record.rows);
    if (r < 0) continue;
    out.insert(out.end(), record.values.begin() + r * record.cols, record.values.begin() + (r + 1) * record.cols);
  }
  return out;
}

// 0/1 over all entries, from the list of selected ones.
Recorded selection_mask(const Recorded& entries, const Recorded& count, int64_t width) {
  Recorded out{entries.rows, width, std::vector<float>(size_t(entries.rows * width), 0)};
  for (int64_t r = 0; r < entries.rows; ++r) {
    for (int64_t i = 0; i < int64_t(count.values[size_t(r)]); ++i) {
      out.values[size_t(r * width + int64_t(entries.values[size_t(r * entries.cols + i)]))] = 1;
    }
  }
  return out;
}

int layer_of(const std::string& stage) { return std::atoi(stage.c_str() + stage.find('.') + 1); }

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::vector<float> cached_rows(SingleSequence& sequence, const std::string& stage, const GoldenTensor& expected) {
  std::vector<float> out;
  const int64_t rows = expected.shape[1], layer = layer_of(stage);
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<float> row;
    if (ends_with(stage, ".window_rows")) {
      row = sequence.window_row(int(layer), sequence.length() - rows + i);
    } else if (ends_with(stage, ".compressed_rows")) {
      row = sequence.latent_row(int(layer), i);
    } else {
      row = sequence.key_row(int(layer), i);
    }
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

std::vector<int32_t> ints(const GoldenTensor& tensor) { return {tensor.values.begin(), tensor.values.end()}; }

}  // namespace

void run_prefill_case(SingleSequence& sequence, const GoldenCase& c, const Report& report) {
  const auto ids = ints(c.tensors.at("input_ids"));
  const int64_t length = int64_t(ids.size());
  sequence.begin(c.replay ? ReplayMode::compact : ReplayMode::off, length, c.replay);
  if (const auto mask = c.tensors.find("image_mask"); mask != c.tensors.end()) {
    const auto& v = mask->second.values;
    const auto first = std::find(v.begin(), v.end(), 1.0f), last = std::find(first, v.end(), 0.0f);
    sequence.mark_image(first - v.begin(), last - v.begin());
  }
  // Positions of the files' T axis: all, the kept ones, or a list.
  const int64_t first_kept = c.replay ? std::max<int64_t>(0, length - *c.replay) : 0;
  std::vector<int64_t> all, logit_positions;
  if (const auto rows = c.tensors.find("rows"); rows != c.tensors.end()) {
    for (const float r : rows->second.values) all.push_back(int64_t(r));
  } else {
    for (int64_t p = 0; p < length; ++p) all.push_back(p);
  }
  for (const int64_t p : all) {
    if (p >= first_kept) logit_positions.push_back(p);
  }

  std::map<std::string, Recorded> records;
  const Trace trace = [&](std::string_view name, AnyView value) {
    records[std::string(name)] = {value.rows, value.cols, values_of(value)};
  };
  const auto logits = sequence.feed(ids, logit_positions, &trace);
  const std::vector<float> prompt_logits(logits.data, logits.data + logits.size());

  for (const auto& [stage, expected] : c.tensors) {
    std::vector<float> found;
    int64_t row_length = expected.shape.back();
    if (stage == "logits") {
      found = prompt_logits;
    } else if (ends_with(stage, ".selected")) {
      const std::string stem = stage.substr(0, stage.size() - std::string_view("selected").size());
      found = rows_at(
          selection_mask(records.at(stem + "selected_entries"), records.at(stem + "selected_count"), row_length),
          length, all);
    } else if (ends_with(stage, ".engram_rows")) {
      found = records.at(stage).values;
    } else if (ends_with(stage, "_rows") || ends_with(stage, ".index_keys")) {
      found = cached_rows(sequence, stage, expected);
      row_length = 1;  // one flipped code is one value
    } else if (records.contains(stage)) {
      // A flipped key reaches one column of every later row, so scores are judged one by one.
      row_length = ends_with(stage, ".index_score") ? 1 : records.at(stage).cols;
      found = rows_at(records.at(stage), length, all);
    } else {
      continue;  // inputs, and what the decode steps below compare
    }
    report(compare_stage(stage, found, expected.values, row_length, tolerance_of(c, stage)));
  }

  std::vector<float> decoded;
  for (const int32_t id : ints(c.tensors.at("decode_ids"))) {
    const int64_t position = sequence.length();
    const auto row = sequence.feed({&id, 1}, {&position, 1});
    decoded.insert(decoded.end(), row.data, row.data + row.size());
  }
  const auto& expected = c.tensors.at("decode_logits");
  report(compare_stage("decode_logits", decoded, expected.values, expected.shape.back(),
                       tolerance_of(c, "decode_logits")));
}

}  // namespace fathom
