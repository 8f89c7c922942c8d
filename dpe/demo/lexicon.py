"""The words of the built-in corpus: about 220 Finnish stems with their English, and how each inflects.

A row of a table names a model word that shows the inflection, what the words mean, and the words:
`koulu+kirja:schoolbook` is the compound of `koulu` and the row's kind of word `kirja`. Stems are chosen so
that no consonant alternates; derivations (`opetta-ja`) are not split. `inflection.py` makes the forms.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from dpe.demo.inflection import DECLENSIONS, Adjective, Noun, Phrase, Verb, change, english_ed

PRONOUNS = (("minä",), ("sinä",), ("hän",), ("me",), ("te",), ("he",))
PRONOUNS_HAVING = (
    ("minu", "lla"),
    ("sinu", "lla"),
    ("häne", "llä"),
    ("mei", "llä"),
    ("tei", "llä"),
    ("hei", "llä"),
)
NEGATIONS = (("e", "n"), ("e", "t"), ("ei",), ("e", "mme"), ("e", "tte"), ("ei", "vät"))

_COMMONEST = """
talo koira auto kirja opettaja ystävä koulu kahvi omena kissa metsä isä kylä kuva tuoli kello sisko lääkäri
kala piha kori sohva laulu museo naapuri juna pallo hotelli puisto lehmä kynä hylly kassi tie puu
iso vanha hyvä hieno kylmä nopea vihreä musta ihana
mene ole osta halua tule asu katso syö juo rakasta tuo puhu istu saa myy sano
"""

_TIMES = """
tänään:today aamu+lla:in_the_morning illa+lla:in_the_evening kesä+llä:in_summer yö+llä:at_night
talve+lla:in_winter sunnuntai+na:on_Sunday maanantai+na:on_Monday perjantai+na:on_Friday
"""

# model, kind, place, words; a third field gives the gender of a person
_NOUNS = """
talo building s-in | talo:house koulu:school kirjasto:library puu+talo:wooden_house auto+koulu:driving_school
talo building s-in | koira+koulu:dog_school kylä+koulu:village_school koulu+kirjasto:school_library
talo outdoors s-in | puisto:park huvi+puisto:amusement_park
talo vehicle s-in | auto:car poliisi+auto:police_car palo+auto:fire_engine
talo thing - | kello:clock pallo:ball lelu:toy viulu:violin piano:piano ruusu:rose tyyny:pillow koru:jewel
talo thing - | taulu:painting seinä+kello:wall_clock tasku+kello:pocket_watch lasi+pallo:glass_ball
talo thing - | lelu+auto:toy_car lumi+pallo:snowball
talo text - | laulu:song runo:poem kehto+laulu:lullaby
talo mass - | juusto:cheese hillo:jam
talo furniture l-on | hylly:shelf kirja+hylly:bookshelf puu+hylly:wooden_shelf
talo container s-in | pullo:bottle lasi+pullo:glass_bottle
talo person - | mummo:grandmother:her eno:uncle:his sisko:sister:her
talo animal - | karhu:bear norsu:elephant possu:pig pöllö:owl
talo drink - | mehu:juice omena+mehu:apple_juice marja+mehu:berry_juice
tuoli building s-in | hotelli:hotel torni:tower halli:hall baari:bar talli:stable auto+talli:garage
tuoli building s-in | kello+torni:clock_tower vesi+torni:water_tower
tuoli building l-at | kioski:kiosk
tuoli outdoors s-in | leiri:camp
tuoli outdoors l-at | tori:market kala+tori:fish_market
tuoli outdoors l-on | terassi:terrace
tuoli vehicle s-on | bussi:bus koulu+bussi:school_bus
tuoli vehicle s-in | taksi:taxi
tuoli thing - | peili:mirror huivi:scarf seinä+peili:wall_mirror
tuoli furniture l-on | tuoli:chair puu+tuoli:wooden_chair noja+tuoli:armchair
tuoli container s-in | kassi:bag kori:basket lasi:glass pussi:pouch viini+lasi:wine_glass
tuoli container s-in | marja+kori:berry_basket
tuoli food - | keksi:biscuit banaani:banana meloni:melon
tuoli drink - | kahvi:coffee viini:wine
tuoli mass - | riisi:rice
tuoli person - | turisti:tourist poliisi:police_officer insinööri:engineer vaari:grandfather:his
kaveri person - | kaveri:buddy naapuri:neighbour lääkäri:doctor tuomari:judge
kaveri building s-in | kellari:cellar teatteri:theatre kesä+teatteri:summer_theatre viini+kellari:wine_cellar
kaveri outdoors l-on | laituri:pier
kaveri container s-in | ämpäri:bucket
kaveri vehicle s-in | traktori:tractor
kaveri food - | sipuli:onion
kala animal - | kala:fish kissa:cat kana:hen
kala building s-in | linna:castle sauna:sauna savu+sauna:smoke_sauna
kala vehicle s-on | laiva:ship
kala outdoors l-in | piha:yard koulu+piha:schoolyard
kala outdoors l-on | lava:stage
kala person - | vauva:baby herra:gentleman:his
kala text - | kirja:book koulu+kirja:schoolbook laulu+kirja:songbook sana+kirja:dictionary
kala text - | kuva+kirja:picture_book keitto+kirja:cookbook runo+kirja:poetry_book
kala thing - | harja:brush saha:saw naula:nail
kala food - | marja:berry
koira animal - | koira:dog lehmä:cow orava:squirrel leijona:lion sorsa:duck poliisi+koira:police_dog
koira vehicle s-on | juna:train
koira vehicle - | pyörä:bike
koira outdoors s-in | luola:cave metsä:forest kylä:village satama:harbour kalastaja+kylä:fishing_village
koira building l-at | asema:station bussi+asema:bus_station poliisi+asema:police_station
koira building l-at | palo+asema:fire_station
koira furniture l-on | sohva:sofa nahka+sohva:leather_sofa
koira surface l-on | seinä:wall
koira food - | muna:egg hedelmä:fruit
koira text - | kuva:picture elo+kuva:film valo+kuva:photograph
koira thing - | kynä:pen lyijy+kynä:pencil
koira person - | isä:father:his ystävä:friend rouva:lady:her opettaja:teacher laulaja:singer pelaaja:player
koira person - | myyjä:shopkeeper kalastaja:fisherman:his kuljettaja:driver matkustaja:passenger
koira person - | johtaja:manager hoitaja:nurse ooppera+laulaja:opera_singer
kitara thing - | kitara:guitar kamera:camera vasara:hammer kynttilä:candle
kitara food - | omena:apple peruna:potato makkara:sausage porkkana:carrot päärynä:pear
kitara text - | tarina:story
kitara building s-in | kahvila:café ravintola:restaurant sairaala:hospital kesä+kahvila:summer_café
kitara building s-in | eläin+sairaala:animal_hospital
kitara animal - | apina:monkey etana:snail
kitara container s-in | kattila:pot
kitara surface l-on | lattia:floor
kitara surface - | ikkuna:window
museo building s-in | museo:museum keittiö:kitchen studio:studio taide+museo:art_museum auto+museo:car_museum
museo building s-in | lelu+museo:toy_museum
museo outdoors l-on | kallio:rock
museo thing - | radio:radio televisio:television
puu outdoors l-on | tie:road metsä+tie:forest_road
puu outdoors l-in | suo:bog
puu outdoors s-in | puu:tree omena+puu:apple_tree
"""

# model, kinds of noun, words
_ADJECTIVES = """
talo animal,thing,vehicle,furniture,container,building,outdoors,food,text,surface | iso:big
talo text,thing,vehicle,furniture,building,outdoors | hieno:fine
kala person,animal,text,thing,vehicle,furniture,container,building,surface | vanha:old
kala person,animal | vahva:strong
kala person,animal,text | hauska:funny
koira person,animal,food,drink,mass,text,thing,vehicle | hyvä:good
koira drink,building,outdoors | kylmä:cold
koira food,drink | kuuma:hot
koira animal,vehicle,thing,container,furniture | musta:black
koira text,vehicle | pitkä:long
koira furniture,building | matala:low
koira container,building,vehicle | tyhjä:empty
koira building,outdoors | tumma:dark
koira container | syvä:deep
koira furniture,food | kova:hard
koira person,text | vakava:serious
koira person,furniture,building,vehicle | mukava:nice
koira person,animal,building,outdoors,text | ihana:lovely
nopea animal,vehicle | nopea:fast
nopea animal,thing,container,furniture | ruskea:brown
nopea vehicle,thing,container,furniture,surface | vihreä:green
nopea building,furniture,surface | korkea:tall
nopea furniture,surface | leveä:wide
nopea furniture,building | kapea:narrow
nopea person,animal | ylpeä:proud rohkea:brave
nopea furniture | pehmeä:soft
nopea person,text,building | tärkeä:important
nopea food,drink | makea:sweet
tuoli animal | villi:wild
tuoli building,vehicle,furniture | moderni:modern
tuoli building,outdoors | siisti:tidy
"""

# sentence pattern, stem before the past suffix, kinds of subject, kinds of object or place, words
_VERBS = """
motion drop person,animal building,outdoors | mene:go:went tule:come:came juokse:run:ran kävele:walk
motion contract person,animal building,outdoors | palaa:return
motion contract animal furniture | hyppää:jump
motion round person building,outdoors | aja:drive:drove
motion drop person building,outdoors | pyöräile:cycle matkusta:travel:travelled
rest drop person,animal building,outdoors,vehicle | ole:be:was
rest keep person building,outdoors | asu:live
rest keep person,animal building,furniture,vehicle | istu:sit:sat
rest keep person,animal building,outdoors | seiso:stand:stood
rest round person building,outdoors | laula:sing:sang naura:laugh
rest drop person building | opiskele:study työskentele:work
rest contract person,animal building,outdoors,furniture | lepää:rest
rest contract person building,outdoors | pelaa:play
act drop person thing,text,vehicle,furniture,container,food,drink,mass,animal | osta:buy:bought
act shorten person thing,text,vehicle,furniture,container,food,drink,mass,animal | myy:sell:sold
state contract person building,vehicle,furniture,surface | maalaa:paint
act contract person vehicle,furniture,thing,building | korjaa:repair
state contract person building | siivoa:clean
act contract person container,surface,building | avaa:open
act drop person vehicle,surface,container,animal | pese:wash
act contract person text,thing,food | kerää:gather pakkaa:pack
act shorten person,animal food,mass | syö:eat:ate
act shorten person drink | juo:drink:drank
act drop person food | valmista:prepare
act contract person,animal person,animal,vehicle,building,text,thing | huomaa:notice
act contract person person | tapaa:meet:met
state contract person building,vehicle,furniture | vuokraa:rent
state drop person person,animal,building,text,thing | muista:remember
state drop person vehicle,building,thing,text,animal | omista:own
state contract person vehicle,thing,text,food,drink,animal | halua:want
feel drop person,animal person,animal,food,building | rakasta:love
feel keep person,animal person,animal,text,building,vehicle,thing | katso:look_at
feel drop person person,text | kuuntele:listen_to
feel drop person person,animal,building,outdoors | ajattele:think_about:thought_about
feel contract person person,animal,building | kaipaa:miss
feel contract person,animal person,animal | pelkää:fear
feel round person food,drink,mass | maista:taste
give shorten person thing,text,food,drink,animal | tuo:bring:brought vie:take:took
give shorten person thing,text,vehicle,food,drink,animal | myy:sell:sold
obtain drop person thing,text,vehicle,food,drink,animal | osta:buy:bought
obtain shorten person thing,text,food,drink | saa:get:got
obtain contract person building,vehicle | vuokraa:rent
put drop person thing,text,food | pane:put:put nosta:lift
topic keep person person,animal,building,text,vehicle | puhu:speak:spoke
topic round person person,animal,building,outdoors | laula:sing:sang
ask keep person person,text,building,vehicle | kysy:ask
report keep person - | sano:say:said usko:believe toivo:hope
report drop person - | muista:remember
report contract person - | huomaa:notice lupaa:promise
"""


def _rows(table: str) -> list[tuple[list[str], list[list[str]]]]:
    """The table's lines as (settings, words), a word being its fields with spaces for underscores."""
    rows = []
    for line in table.strip().splitlines():
        settings, words = line.split(" | ")
        rows.append((settings.split(), [word.replace("_", " ").split(":") for word in words.split()]))
    return rows


def _nouns() -> list[Noun]:
    nouns = []
    for (model, kind, place), words in _rows(_NOUNS):
        for finnish, english, *gender in words:
            *parts, stem = finnish.split("+")
            pronoun = gender[0] if gender else "" if kind == "person" else "its"
            nouns.append(Noun(tuple(parts), stem, DECLENSIONS[model], kind, place, english, pronoun))
    return nouns


def _adjectives() -> list[Adjective]:
    return [
        Adjective((), stem, DECLENSIONS[model], frozenset(kinds.split(",")), english)
        for (model, kinds), words in _rows(_ADJECTIVES)
        for stem, english in words
    ]


def _verbs() -> list[Verb]:
    verbs = []
    for (frame, past, subjects, objects), words in _rows(_VERBS):
        for stem, english, *english_past in words:
            stems = (stem[:-1], "si") if past == "contract" else (change(stem, past), "i")
            kinds = frozenset(subjects.split(",")), frozenset(objects.split(","))
            verbs.append(Verb(stem, stems, frame, *kinds, english, *(english_past or [english_ed(english)])))
    return verbs


def _phrases(words: str) -> list[Phrase]:
    return [
        Phrase(english, (tuple(finnish.split("+")),))
        for finnish, english in (word.replace("_", " ").split(":") for word in words.split())
    ]


_Word = TypeVar("_Word", Noun, Adjective, Verb)
_Choice = TypeVar("_Choice")


def _ranked(words: list[_Word]) -> list[_Word]:
    """A fixed order of frequency: the commonest as listed, then the others in any order, compounds last."""
    random.Random(0).shuffle(words)
    listed = {stem: place for place, stem in enumerate(_COMMONEST.split())}

    def rank(word: _Word) -> tuple[bool, int]:
        return isinstance(word, Noun) and word.parts != (), listed.get(word.stem, len(listed))

    return sorted(words, key=rank)


THAT = Phrase(" that", (("että",),))
LINKS = _phrases("ja:,_and mutta:,_but koska:_because kun:_when joten:,_so vaikka:_although")
FREQUENCIES = _phrases("usein:often aina:always yhä:still harvoin:rarely")
PRESENT_TIMES = _phrases(f"{_TIMES} nyt:now")
PAST_TIMES = _phrases(f"{_TIMES} eilen:yesterday")
NOUNS = _ranked(_nouns())
ADJECTIVES = _ranked(_adjectives())
VERBS = _ranked(_verbs())


def zipf_choice(rng: random.Random, words: Sequence[_Choice]) -> _Choice:
    """A word drawn with probability proportional to 1 / (rank + 1), ranks counting from 1."""
    return rng.choices(words, cum_weights=_cumulative_weights(len(words)))[0]


@cache
def _cumulative_weights(count: int) -> list[float]:
    total, sums = 0.0, []
    for rank in range(1, count + 1):
        total += 1 / (rank + 1)
        sums.append(total)
    return sums


@cache
def nouns_of(kinds: frozenset[str], *, places: bool = False) -> tuple[Noun, ...]:
    """The nouns of these kinds, most frequent first; only those one can be at if `places`."""
    return tuple(noun for noun in NOUNS if noun.kind in kinds and (noun.place != "-" or not places))


@cache
def adjectives_for(kind: str) -> tuple[Adjective, ...]:
    """The adjectives that can be said of this kind of noun, most frequent first."""
    return tuple(adjective for adjective in ADJECTIVES if kind in adjective.kinds)
