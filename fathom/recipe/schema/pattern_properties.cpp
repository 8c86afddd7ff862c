// The names that \p{…} knows, in their loose form: lower case without blanks, "-" and "_".
// Source: Unicode 16.0, PropertyAliases.txt and PropertyValueAliases.txt.
#include <string>
#include <unordered_set>

#include "fathom/recipe/schema/pattern.h"

namespace fathom::recipe::schema {
namespace {

using Names = std::unordered_set<std::string_view>;

Names names_in(std::string_view list) {
  Names names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = list.find(' ', begin);
    names.insert(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// clang-format off
constexpr std::string_view kCategories =
    "any ascii assigned c casedletter cc cf closepunctuation cn cntrl co combiningmark connectorpunctuation "
    "control cs currencysymbol dashpunctuation decimalnumber digit enclosingmark finalpunctuation format "
    "initialpunctuation l lc letter letternumber lineseparator ll lm lo lowercaseletter lt lu m mark "
    "mathsymbol mc me mn modifierletter modifiersymbol n nd nl no nonspacingmark number openpunctuation "
    "other otherletter othernumber otherpunctuation othersymbol p paragraphseparator pc pd pe pf pi po "
    "privateuse ps punct punctuation s sc separator sk sm so spaceseparator spacingmark symbol "
    "titlecaseletter unassigned uppercaseletter z zl zp zs ";
constexpr std::string_view kBinaryProperties =
    "ahex alnum alpha alphabetic asciihexdigit bidic bidicontrol bidim bidimirrored cased caseignorable "
    "changeswhencasefolded changeswhencasemapped changeswhenlowercased changeswhentitlecased "
    "changeswhenuppercased ci cwcf cwcm cwl cwt cwu dash defaultignorablecodepoint dep deprecated di dia "
    "diacritic ebase ecomp emod emoji emojicomponent emojimodifier emojimodifierbase emojipresentation epres "
    "ext extendedpictographic extender extpict graphemebase graphemeextend graphemelink grbase grext hex "
    "hexdigit hyphen idc idcompatmathcontinue idcompatmathstart idcontinue ideo ideographic ids idsb "
    "idsbinaryoperator idst idstart idstrinaryoperator idsu idsunaryoperator joinc joincontrol loe "
    "logicalorderexception lower lowercase math mcm modifiercombiningmark nchar noncharactercodepoint "
    "otheralphabetic otherdefaultignorablecodepoint othergraphemeextend otheridcontinue otheridstart "
    "otherlowercase othermath otheruppercase patsyn patternsyntax patternwhitespace patws pcm "
    "prependedconcatenationmark qmark quotationmark radical regionalindicator ri sd sentenceterminal "
    "softdotted space sterm term terminalpunctuation uideo unifiedideograph upper uppercase "
    "variationselector vs whitespace wspace xidc xidcontinue xids xidstart ";
constexpr std::string_view kScripts =
    "adlam adlm aghb ahom anatolianhieroglyphs arab arabic armenian armi armn avestan avst bali balinese "
    "bamu bamum bass bassavah batak batk beng bengali bhaiksuki bhks bopo bopomofo brah brahmi brai braille "
    "bugi buginese buhd buhid cakm canadianaboriginal cans cari carian caucasianalbanian chakma cham cher "
    "cherokee chorasmian chrs common copt coptic cpmn cprt cuneiform cypriot cyprominoan cyrillic cyrl "
    "deseret deva devanagari diak divesakuru dogr dogra dsrt dupl duployan egyp egyptianhieroglyphs elba "
    "elbasan elym elymaic ethi ethiopic gara garay geor georgian glag glagolitic gong gonm goth gothic gran "
    "grantha greek grek gujarati gujr gukh gunjalagondi gurmukhi guru gurungkhema han hang hangul hani "
    "hanifirohingya hano hanunoo hatr hatran hebr hebrew hira hiragana hluw hmng hmnp hung imperialaramaic "
    "inherited inscriptionalpahlavi inscriptionalparthian ital java javanese kaithi kali kana kannada "
    "katakana kawi kayahli khar kharoshthi khitansmallscript khmer khmr khoj khojki khudawadi kiratrai kits "
    "knda krai kthi lana lao laoo latin latn lepc lepcha limb limbu lina linb lineara linearb lisu lyci "
    "lycian lydi lydian mahajani mahj maka makasar malayalam mand mandaic mani manichaean marc marchen "
    "masaramgondi medefaidrin medf meeteimayek mend mendekikakui merc mero meroiticcursive "
    "meroitichieroglyphs miao mlym modi mong mongolian mro mroo mtei mult multani myanmar mymr nabataean "
    "nagm nagmundari nand nandinagari narb nbat newa newtailue nko nkoo nshu nushu nyiakengpuachuehmong ogam "
    "ogham olchiki olck oldhungarian olditalic oldnortharabian oldpermic oldpersian oldsogdian "
    "oldsoutharabian oldturkic olduyghur olonal onao oriya orkh orya osage osge osma osmanya ougr "
    "pahawhhmong palm palmyrene pauc paucinhau perm phag phagspa phli phlp phnx phoenician plrd prti "
    "psalterpahlavi qaac qaai rejang rjng rohg runic runr samaritan samr sarb saur saurashtra sgnw sharada "
    "shavian shaw shrd sidd siddham signwriting sind sinh sinhala sogd sogdian sogo sora sorasompeng soyo "
    "soyombo sund sundanese sunu sunuwar sylo sylotinagri syrc syriac tagalog tagb tagbanwa taile taitham "
    "taiviet takr takri tale talu tamil taml tang tangsa tangut tavt telu telugu tfng tglg thaa thaana thai "
    "tibetan tibt tifinagh tirh tirhuta tnsa todhri todr toto tulutigalari tutg ugar ugaritic vai vaii vith "
    "vithkuqi wancho wara warangciti wcho xpeo xsux yezi yezidi yi yiii zanabazarsquare zanb zinh zyyy ";
// clang-format on

std::string loose(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    out += c >= 'A' && c <= 'Z' ? char(c | 0x20) : c;
  }
  return out.starts_with("is") ? out.substr(2) : out;
}

}  // namespace

bool known_property(std::string_view name) {
  static const Names categories = names_in(kCategories), binary = names_in(kBinaryProperties),
                     scripts = names_in(kScripts);
  const size_t sign = name.find_first_of("=:");
  if (sign == std::string_view::npos) {
    const std::string key = loose(name);
    return categories.contains(key) || binary.contains(key) || scripts.contains(key);
  }
  const bool negated = sign > 0 && name[sign] == '=' && name[sign - 1] == '!';
  const std::string property = loose(name.substr(0, sign - negated)), value = loose(name.substr(sign + 1));
  if (property == "gc" || property == "generalcategory") return categories.contains(value);
  if (property == "sc" || property == "script" || property == "scx" || property == "scriptextensions") {
    return scripts.contains(value);
  }
  return false;
}

}  // namespace fathom::recipe::schema
