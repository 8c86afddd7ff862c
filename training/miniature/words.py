"""The words that the task templates draw from. Their order is part of the corpus: a seed picks by index."""

from __future__ import annotations


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split(","))


CAPITALS = _pairs(
    "France:Paris,Germany:Berlin,Italy:Rome,Spain:Madrid,Portugal:Lisbon,Norway:Oslo,Sweden:Stockholm,"
    "Finland:Helsinki,Denmark:Copenhagen,Poland:Warsaw,Austria:Vienna,Greece:Athens,Turkey:Ankara,Egypt:Cairo,Kenya:Nairobi,"
    "Nigeria:Abuja,Ghana:Accra,Morocco:Rabat,India:New Delhi,Nepal:Kathmandu,China:Beijing,Japan:Tokyo,South Korea:Seoul,"
    "Thailand:Bangkok,Vietnam:Hanoi,Indonesia:Jakarta,Philippines:Manila,Australia:Canberra,New Zealand:Wellington,Canada:Ottawa,"
    "Mexico:Mexico City,Cuba:Havana,Brazil:Brasilia,Argentina:Buenos Aires,Chile:Santiago,Peru:Lima,Colombia:Bogota,"
    "Ireland:Dublin,Iceland:Reykjavik,Hungary:Budapest,Romania:Bucharest,Bulgaria:Sofia,Ukraine:Kyiv,Belgium:Brussels,"
    "Netherlands:Amsterdam,Switzerland:Bern,Iran:Tehran,Iraq:Baghdad,Israel:Jerusalem,Jordan:Amman,Qatar:Doha"
)
ZH_CAPITALS = _pairs(
    "法国:巴黎,德国:柏林,意大利:罗马,西班牙:马德里,中国:北京,日本:东京,韩国:首尔,泰国:曼谷,越南:河内,印度:新德里,"
    "埃及:开罗,英国:伦敦,俄罗斯:莫斯科,加拿大:渥太华,巴西:巴西利亚,澳大利亚:堪培拉,希腊:雅典,挪威:奥斯陆,瑞典:斯德哥尔摩,芬兰:赫尔辛基"
)
ELEMENTS = _pairs(
    "hydrogen:H,helium:He,lithium:Li,carbon:C,nitrogen:N,oxygen:O,fluorine:F,neon:Ne,sodium:Na,magnesium:Mg,"
    "aluminium:Al,silicon:Si,phosphorus:P,sulfur:S,chlorine:Cl,argon:Ar,potassium:K,calcium:Ca,titanium:Ti,chromium:Cr,"
    "manganese:Mn,iron:Fe,cobalt:Co,nickel:Ni,copper:Cu,zinc:Zn,silver:Ag,tin:Sn,iodine:I,platinum:Pt,gold:Au,mercury:Hg,"
    "lead:Pb,uranium:U,barium:Ba,tungsten:W"
)
WORDS = (
    "apple river stone cloud table green horse music paper light window garden silver winter bridge candle forest market ocean "
    "pencil rocket shadow summer temple valley yellow castle dragon engine farmer guitar hammer island jacket kitchen ladder "
    "mirror needle orange parrot quartz ribbon saddle turtle violin wagon zebra anchor basket camera desert eagle feather "
    "glacier harbor insect jungle kettle lemon marble novel onion pepper rabbit sailor tiger umbrella velvet walnut bottle "
    "carpet doctor flower grape helmet igloo jelly kite lantern monkey nest olive piano queen robot spider train urchin vase "
    "whale yacht acorn beach coral daisy ember frost"
).split()
NAMES = "Alice Bob Carol David Emma Frank Grace Henry Irene Jack Karen Leo Maria Nina Oscar Paula Quinn Rosa Sam Tina Victor Wendy".split()
ZH_NAMES = "小明 小红 李华 王芳 张伟 刘洋 陈静 赵磊".split()
COLORS = "red blue green yellow black white purple orange brown silver".split()
CITIES = (
    "Paris Berlin Rome Madrid Oslo Cairo Tokyo Seoul Lima Dublin Vienna Athens Boston Chicago Sydney Toronto Mumbai "
    "Nairobi Lisbon Prague"
).split()
JOBS = "teacher doctor pilot farmer painter engineer baker nurse lawyer writer chef driver".split()
THINGS = "cat dog book lamp chair phone coin key cup hat ball box".split()
WEATHER = "sunny cloudy rainy windy snowy foggy".split()
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a concise assistant.",
    "Answer briefly and correctly.",
    "You are Fathom, a small test model.",
)
ABILITIES = "I can do small sums, sort and copy words, look up capitals and elements, find numbers in a text, write JSON and call tools."
UNKNOWN = (
    "Tell me a joke.|How do I cook rice?|Write a poem about the sea.|What is the meaning of life?|Explain quantum physics.|Who won the game?|"
    "How are you?|Why is the sky blue?|Write an essay about history.|What should I wear?|Do you like music?|Summarize this book for me.|"
    "How tall is the highest mountain?|What is love?|Plan a trip for me.|Who is the president?|Fix my computer.|Translate this to French.|"
    "What is the best movie?|Can you draw a cat?|How old are you?|Where do you live?|Tell me a story.|Give me advice.|How far is the moon?|"
    "What happened today?|Recommend a restaurant.|How does a car work?|Write a letter to my friend.|Is it going to rain?"
).split("|")

EFFORTS = (75, 75, 75, 100, 50, 20)  # reasoning efforts; the usual one comes up most
