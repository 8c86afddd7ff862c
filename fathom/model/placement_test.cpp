#include "fathom/model/placement.h"

#include <gtest/gtest.h>

#include "fathom/model/presets.h"

namespace fathom {
namespace {

// spec/memory.md 3: routed experts of both halves, and three draft stages of 128.
constexpr int64_t kExpert = 18'800'640, kExperts = 40 * 384 + 3 * 128, kTables = 202'758'032'400;

TEST(Placement, CountsTheExpertsOfFlashAsItsSpecificationDoes) {
  const ModelConfig config = *preset_config("flash-sparse");
  EXPECT_EQ(expert_slot_bytes(config), kExpert);
  EXPECT_EQ(expert_count(config), kExperts);
  const PlacedBytes all = placed_bytes(config, {});
  const PlacedBytes split = placed_bytes(config, {.experts = Place::ram, .engram = Place::disk});
  EXPECT_EQ(split.ram, kExperts * kExpert);
  EXPECT_NEAR(double(split.disk), double(kTables), 1024);  // padding of four tensors
  EXPECT_EQ(split.device + split.ram + split.disk, all.device);
  EXPECT_EQ(all.ram + all.disk, 0);
}

TEST(Placement, SlotsAreWhatIsGivenOrHalfOfWhatIsLeft) {
  const ModelConfig config = *preset_config("flash-sparse");
  Placement placement{.experts = Place::ram, .engram = Place::disk};
  const int64_t other = placed_bytes(config, placement).device;
  EXPECT_EQ(*expert_slots(config, placement, other + 200 * kExpert + 5), 100);
  EXPECT_EQ(*expert_slots(config, placement, int64_t(1) << 50), kExperts);
  placement.stream.limit_bytes = 7 * kExpert + 1;
  EXPECT_EQ(*expert_slots(config, placement, 0), 7);
  placement.stream.limit_bytes = 2 * kExpert - 1;
  const auto small = expert_slots(config, placement, 0);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(small.error().where, "--resident-limit");
  EXPECT_NE(small.error().remedy.find("37,601,280"), std::string::npos);
}

TEST(Placement, RefusesWithFiguresWhatThereIsNoRoomFor) {
  const ModelConfig config = *preset_config("flash-sparse");
  const Placement here{.engram = Place::disk}, ram{.experts = Place::ram, .engram = Place::disk};
  const Room h200{140'000'000'000, 400'000'000'000};
  const auto whole = check_room(config, here, h200, "folder");
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(whole.error().where, "folder");
  EXPECT_NE(whole.error().message.find("140,000,000,000 bytes of the device"), std::string::npos);
  EXPECT_NE(whole.error().remedy.find("--experts ram"), std::string::npos);
  EXPECT_TRUE(check_room(config, ram, h200, "folder").ok());
  const auto host = check_room(config, ram, {140'000'000'000, 200'000'000'000}, "folder");
  ASSERT_FALSE(host.ok());
  EXPECT_NE(host.error().message.find("295,997,276,160"), std::string::npos);
  EXPECT_NE(host.error().message.find("host memory"), std::string::npos);
  Placement large = ram;
  large.stream.limit_bytes = 130'000'000'000;
  const auto slots = check_room(config, large, h200, "folder");
  ASSERT_FALSE(slots.ok());
  EXPECT_NE(slots.error().remedy.find("--resident-limit"), std::string::npos);
  EXPECT_FALSE(check_room(config, {.engram = Place::ram}, h200, "folder").ok());
}

TEST(Placement, ARankHasTheExpertsOfItsShare) {
  ModelConfig config = *preset_config("tiny");
  const int64_t all = expert_count(config);
  config.expert_share = {1, 4};
  EXPECT_EQ(4 * expert_count(config), all);
}

TEST(Places, HaveTheNamesOfTheOptions) {
  for (const Place place : {Place::device, Place::ram, Place::disk}) EXPECT_EQ(place_of(name_of(place)), place);
  EXPECT_FALSE(place_of("tape").has_value());
}

}  // namespace
}  // namespace fathom
