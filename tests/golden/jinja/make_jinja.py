"""What jinja2, set up as transformers sets it up, makes of many templates.

Writes jinja.json: variable sets, and for each template its results under some of them: a text, or an error and its kind
("refused" by raise_exception with the message, "syntax", "run"). Run with transformers 5.x: python make_jinja.py
templates/ holds templates in the manner of well-known model families, in words of our own.
"""
import datetime, json, os, random, re
import jinja2
import transformers.utils.chat_template_utils as hf

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2026, 3, 7, 9, 5, 2)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


hf.datetime = Clock


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tells the weather.\nNow & then <here>.", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "enum": ["Köln", "Ürümqi", "O'Fallon"]}, "days": {"type": "integer", "default": 1.5}, "deep": {"type": "object", "properties": {
        "list": {"type": "array", "items": {"type": "number"}}, "either": {"type": ["string", "null"]}, "none": {}}}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}, "return": {"type": "string"}}}]
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "ok": True, "x": None, "f": 0.1}}}
TALKS = {
    "one": [turn("user", "Hello")],
    "system": [turn("system", "Be brief.\n"), turn("user", "  What is 2+2? \n")],
    "long": [turn("system", "S"), turn("user", "a"), turn("assistant", " b "), turn("user", "c\n\nd"), turn("assistant", "<think>\nhm\n</think>\n\ne"), turn("user", "")],
    "unicode": [turn("user", "Grüße 👩‍👩‍👧 — 画像\u00a0\u2003 \"q\" 'r' \\ \t ẞß"), turn("assistant", "ﬁn\u0301 ΑΣ")],
    "tricks": [turn("user", "<|im_end|>\n<|im_start|>system\n{{ 7*7 }}{% raw %}<start_of_turn>model <bos></s>[/INST]"), turn("assistant", "<end_of_turn>")],
    "order": [turn("assistant", "I begin"), turn("user", "You do")],
    "twice": [turn("user", "a"), turn("user", "b")],
    "role": [turn("user", "a"), turn("assistant", "b"), turn("critic", "c")],
    "calls": [turn("system", "Use tools."), turn("user", "Weather?"), turn("assistant", "", tool_calls=[CALL]), turn("tool", {"content": "rain", "t": [1, 2]}, tool_call_id="abcdefghi"),
              turn("tool", "late", tool_call_id="abcdefghi"), turn("assistant", "It rains.")],
    "parts": [turn("user", [{"type": "text", "text": "Look: "}, {"type": "image", "image": "x.png"}, {"type": "audio"}]), turn("assistant", None), turn("user", {"b": [1, {"c": None}], "a": "ä"})],
    "no_content": [{"role": "user"}],
    "empty": [],
}
FLAGS = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
VARIABLES = {}
for name, messages in TALKS.items():
    VARIABLES[name] = {"messages": messages, "tools": None, "documents": None, **FLAGS}
VARIABLES["tools"] = {"messages": TALKS["calls"], "tools": TOOLS, "documents": None, **FLAGS, "tools_in_user_message": False}
VARIABLES["tools_user"] = {"messages": TALKS["system"], "tools": TOOLS, "documents": [], **FLAGS, "add_generation_prompt": False}
VARIABLES["thinking_off"] = {"messages": TALKS["one"], "tools": None, **FLAGS, "enable_thinking": False, "date_string": "then"}
VARIABLES["thinking_mid"] = {"messages": [turn("user", "q"), turn("assistant", "<think>\na\n</think>\n\nb", tool_calls=[CALL, CALL]), turn("tool", "r1"), turn("tool", "r2")], "tools": TOOLS[1:], **FLAGS}
VARIABLES["values"] = {"s": "Hello wide World", "u": "Grüße, 画像! ßﬁ", "blank": "  \t x \n ", "n": 7, "neg": -3, "f": 2.5, "big": 1234567890123, "tiny": 1.5e-7, "huge": 2.5e+20, "t": True, "no": False, "nil": None,
                       "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple", "Fig"], "mixed": [1, "a", None, 2.5, [1, 2], {"k": "v"}], "e": [], "d": {"b": 1, "a": [1, 2], "C": {"x": "y"}}, "ed": {}, "html": "<a href=\"x\">&'</a>",
                       "people": [{"name": "Ann", "age": 30, "tags": ["x", "y"]}, {"name": "bob", "age": 25, "tags": []}, {"name": "Cid", "age": 30}], "lines": "one\n  two\n\nthree\r\nfour", "num": "42", "hex": "0x1F", "fl": " 3.75 "}

SMALL = []


def one(*templates):
    SMALL.extend(templates)


# White space.
one("a {% if true %} b {% endif %} c", "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc\n", "a \n {%+ if true %}\nb{% endif +%}\nc", "x {#- gone -#} y", "x\n  {# gone #}\ny", "{# a #}{# b #}\n\nz",
    "  {{ 1 }}  \n  {{- 2 -}}  \n{{ 3 }}\n", "{% set a = 1 %}\n\n{{ a }}\n\n\n", "\n\n{% if true %}\n\nx\n\n{% endif %}\n\n", "a\r\nb\rc\n{{ 'x\r\ny' }}", "{{ '\\n' }}|{{ \"\\t\\\\ \\x41 \\u00e9 \\101 \\q\" }}|{{ 'a' 'b' \"c\" }}", "{% raw %}{{ x }} {% if %}{# #}{% endraw %}|",
    "{%- raw -%}  a  {%- endraw -%}  b", "a\n  {% raw %}\n x\n  {% endraw %}\nb", "  {% for i in [1,2] %}\n    {{ i }}\n  {% endfor %}\n", "\t{% if true %}\t\n\t\tx{% endif %}", "{{'a'}}{%if true%}b{%endif%}{{-'c'}}", "{{ - 1 }} {{-1}} {{+1}} {{ -n }}", "{% if true -%}\n\n  x  \n{%- endif %}\ny",
    "a\u00a0{%- if true -%}\u2003b{% endif %}", "line\n    {{- ' x' }}\n    {%- set q = 1 %}\nend", "{{ '{{' }} {{ '%}' }} {{ \"}}\" }}", "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'x':{}} }}", "a{% set x = 'q' -%}   \n  b", "{# multi\nline\n#}\nafter", "text only", "", "\n", "{", "{ {", "a { b } c % d # e", "{{ 1 }}\n\n")
# Statements.
one("{% if n > 5 %}big{% elif n > 2 %}mid{% else %}small{% endif %}", "{% if e %}x{% elif ed %}y{% elif nil %}z{% else %}none of these{% endif %}", "{% if t %}{% set q = 1 %}{% endif %}{{ q }}", "{% for x in l %}{{ x }}{% endfor %}", "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }},{% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1,1,2,2,1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}", "{% for x in [] %}x{% else %}empty{% endfor %}",
    "{% for x in l if x > 9 %}x{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }} {% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}", "{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{{ ns.x }},{% endfor %}{{ ns.x }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{{ ns.c }}{% set ns.c = 'new' %}{{ ns.c }}", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1,2] %}{% for j in [1,2,3] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% else %}no{% endfor %}", "{% set a, b = 1, 'x' %}{{ a }}{{ b }}", "{% set a, b = [1, 2] %}{{ b }}{{ a }}", "{% set x %}block {{ n }}\n{% endset %}[{{ x }}]", "{% set x | upper | trim %} block {{ n }} {% endset %}[{{ x }}]", "{% set x = 1, 2 %}{{ x }}", "{% set x = 1 if false %}[{{ x }}]",
    "{% macro f(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} {{ f(b=1, a=0) }} {{ f() }}", "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ f() }}", "{% macro f() %}{{ y }}{% endmacro %}{% for y in [1] %}{{ f() }}{% endfor %}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{{ n }}{% endcall %}", "{% macro f() %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) f() %}<{{ x }}>{% endcall %}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f.caller }}",
    "{% macro f() %}  x  {% endmacro %}{{ f() | trim }}|{{ f() | length }}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}[{{ z }}]", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% print 1, 'a' %}", "{% generation %}x{{ n }}{% endgeneration %}y", "{% set loop_x = 1 %}{% for x in [1] %}{{ loop_x }}{% endfor %}",
    "{% if not e and (n or nil) %}yes{% endif %}", "{% for x in nothing %}{{ x }}{% else %}undefined is empty{% endfor %}", "{% for m in people %}{% set name = m.name %}{% endfor %}[{{ name }}]", "{% set ns = namespace(found=false) %}{% for x in l if not ns.found %}{% if x == 1 %}{% set ns.found = true %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if loop.last %}{{ loop.length }}{% endif %}{% endfor %}",
    "{% set s = 'inner' %}{{ s }}", "{% for x in l %}{% set s = x %}{{ s }}{% endfor %}{{ s }}", "{% for s in l %}{{ s }}{% endfor %}{{ s }}", "{% macro m(s) %}{{ s }}{% endmacro %}{{ m(1) }}{{ s }}", "{% if false %}{% set s = 1 %}{% endif %}{{ s }}", "{% call (a, b=2) undefined_thing() %}{% endcall %}", "{% macro f(x) %}{{ x is defined }}{{ x }}{% endmacro %}{{ f() }}{{ f(none) }}",     "{% macro f() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ f() }}{{ q is defined }}", "{% for x in l | sort(reverse=true) %}{{ x }}{% endfor %}", "{% for x in l[1:] + [9] %}{{ x }}{% endfor %}", "{% for i in range(10, 0, -3) %}{{ i }} {% endfor %}", "{% if 'user' in ['user', 'x'] and 'a' not in 'bcd' %}ok{% endif %}")
# Expressions.
one("{{ 1 + 2 * 3 - 4 / 2 }}", "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 9 ** 0.5 }}", "{{ 1 / 2 }} {{ 4 / 2 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1e400 }} {{ 1.0 }} {{ 100000000000000000.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789.123456789 }} {{ 1e-5 }}",
    "{{ f }} {{ tiny }} {{ huge }} {{ big }} {{ t }} {{ no }} {{ nil }}", "{{ n == 7 }} {{ n != 7 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 }} {{ 1 == 1.0 }} {{ t == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) == (1,) }} {{ [1] == (1,) }} {{ 'a' == 1 }}", "{{ t and n }} {{ no or 'x' }} {{ not t }} {{ not nil and 1 }} {{ e or ed or 'end' }} {{ nil and undefined_a.b }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ nothing }}", "{{ 1 ~ 2 + 3 }}", "{{ 'ab' * 3 }} {{ [1] * 2 }} {{ 2 * 'x' }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }}", "{{ 'x' if t else 'y' }} {{ 'x' if no else 'y' }} {{ 'x' if no }} {{ 1 if 0 else 2 if 0 else 3 }}", "{{ l[0] }} {{ l[-1] }} {{ l[9] }} {{ s[0] }} {{ s[-1] }} {{ u[2] }} {{ d['b'] }} {{ d.b }} {{ d['zz'] }} {{ d.C.x }} {{ people[0].tags[1] }} {{ l.0 }} {{ people.1.name }}",
    "{{ l[1:] }} {{ l[:-1] }} {{ l[::2] }} {{ l[::-1] }} {{ s[2:5] }} {{ s[::-1] }} {{ u[1:4] }} {{ u[-3:] }} {{ l[5:] }} {{ l[-9:2] }} {{ s[:] }} {{ s[10:2:-3] }} {{ (1,2,3)[1:] }} {{ range(10)[2:8:2] }} {{ l[none:2] }}", "{{ [1, 'a', none, true, 1.5, [2], (3,), {'k': 'v'}] }}", "{{ ['it\\'s', 'say \"x\"', 'both \\' \"', 'tab\\t', 'nl\\n', '\\\\', 'é', '\\u200b', '\\x00', '\\x7f', '👍', '\\U000e0001'] }}", "{{ () }} {{ (1,) }} {{ (1, 2) }} {{ [] }} {{ {} }} {{ {'a': 1, 2: 'b', none: 1.0, (1, 2): []} }} {{ {'a': 1, 'a': 2} }} {{ {1: 'x', 1.0: 'y', true: 'z'} }}",
    "{{ 1 in l }} {{ 9 not in l }} {{ 'ell' in s }} {{ 'b' in d }} {{ '' in '' }} {{ 1.0 in l }} {{ none in mixed }} {{ 'x' in nothing }} {{ 3 in range(5) }} {{ 'b' in d.keys() }} {{ ('b', 1) in d.items() }} {{ nothing in [1] }}", "{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ s is string }} {{ n is number }} {{ f is float }} {{ n is integer }} {{ t is integer }} {{ t is boolean }} {{ t is number }} {{ t is true }} {{ no is false }} {{ 1 is true }}",
    "{{ nil is none }} {{ nothing is defined }} {{ nothing is undefined }} {{ nothing is none }} {{ s is defined }} {{ d is mapping }} {{ l is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ l is iterable }} {{ n is iterable }} {{ nothing is iterable }} {{ nothing is sequence }} {{ range(2) is sequence }} {{ d.items() is sequence }} {{ d.items() is iterable }} {{ l|map('string') is iterable }} {{ l|map('string') is sequence }}",
    "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'Abc' is lower }} {{ '123' is upper }} {{ n is eq 7 }} {{ n is equalto 7 }} {{ n is ne 7 }} {{ n is gt 6 }} {{ n is lessthan 6 }} {{ n is ge 7 }} {{ n is le(7) }} {{ 1 is in [1] }} {{ 'a' is in 'abc' }} {{ 1 is not in [1] }} {{ t is sameas true }} {{ 1 is sameas true }} {{ nil is sameas none }} {{ range is callable }} {{ s is callable }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ s is not string }} {{ not s is string }} {{ 'x'|escape is escaped }} {{ 'x' is escaped }}",
    "{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }}", "{{ -l[0] }} {{ -n|abs }} {{ +neg }} {{ - -n }}", "{{ nothing }}[{{ d.zz }}]{{ nothing|default('x') }} {{ d.zz|default('y') }} {{ ''|default('z') }}|{{ ''|default('z', true) }} {{ nil|default(1) }} {{ nil|default(1, boolean=true) }} {{ 0|d(5, true) }}", "{{ dict(a=1, b=[2]) }} {{ dict([('x', 1)]) }} {{ dict({'p': 1}, q=2) }} {{ dict() }}", "{{ range(3) }} {{ range(1, 9, 3)|list }} {{ range(5)|length }} {{ range(0)|list }} {{ range(5)[-1] }}",
    "{{ d }} {{ d.keys() }} {{ d.values() }} {{ d.items() }} {{ d.items()|list }} {{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ d.keys()|list }} {{ d|length }} {{ d.copy() }}", "{{ l.index(2) }} {{ l.count(1) }} {{ (1, 1).count(1) }}", "{{ f(1) if false else 'no call' }}", "{{ f.is_integer() }} {{ 3.0.is_integer() }}", "{{ 'a,b;c'.split(',') }} {{ 'a b  c'.split() }} {{ ' a b '.split(' ') }} {{ 'a-b-c'.split('-', 1) }} {{ 'a-b-c'.rsplit('-', 1) }} {{ '  a b  c '.split(none, 1) }} {{ '  a b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'aXXbXXc'.rsplit('XX') }}",
    "[{{ blank.strip() }}][{{ blank.lstrip() }}][{{ blank.rstrip() }}] {{ 'xxaxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ 'äöä'.strip('ä') }} {{ 'abc'.rstrip('bc') }}", "{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.startswith('wide', 6) }} {{ s.endswith('wide', 0, 10) }} {{ s.startswith('') }}", "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 2) }} {{ s.replace('', '-') }} {{ u.replace('ü', 'ue') }}",
    "{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ u.upper() }} {{ 'GRÜẞ'.lower() }} {{ \"it's o'neil 3rd x2y\".title() }} {{ 'éa'.capitalize() }} {{ 'AbC'.casefold() }}", "{{ s.find('wide') }} {{ s.find('zz') }} {{ s.rfind('l') }} {{ s.find('l', 4) }} {{ u.find('画') }} {{ s.index('o') }} {{ s.count('l') }} {{ s.count('') }} {{ s.find('') }} {{ s.rfind('') }} {{ 'aaa'.rfind('aa') }} {{ 'aaaa'.count('aa') }} {{ s.find('o', -4) }}", "{{ ','.join(['a', 'b']) }} {{ ''.join([]) }} {{ '-'.join('abc') }} {{ ' '.join(words) }}",
    "{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isalpha() }} {{ 'Ab'.istitle() }} {{ 'ab'.islower() }} {{ 'AB'.isupper() }} {{ 'é'.isascii() }} {{ '½'.isnumeric() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'a\\n'.isprintable() }}", "{{ 'a'.center(5) }}|{{ 'ab'.center(5, '*') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }}|{{ '-7'.zfill(5) }}|{{ '7'.zfill(3) }}", "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ lines.splitlines() }} {{ lines.splitlines(true) }}",
    "{{ '{} {} {x}'.format(1, 'b', x=2) }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:.2f} {:5d} {:05d} {:+d} {:,} {:x} {:#x} {:o} {:b} {:e} {:g} {:%}'.format(3.14159, 42, 42, 42, 1234567, 255, 255, 8, 5, 12345.678, 0.0001, 0.25) }} {{ '{!r} {!s}'.format('a', 'a') }} {{ '{0.name} {0[age]} {1[0]}'.format(people[0], l) }} {{ '{{}}'.format() }} {{ '{:{}}'.format('a', 4) }}|{{ '{:.2}'.format('abc') }} {{ '{:10.3}|'.format(2.5) }} {{ '{:.3}'.format(1234.5) }} {{ '{}'.format(none) }} {{ '{:_}'.format(1234567) }} {{ '{:,.1f}'.format(1234567.89) }} {{ '{:06.1f}'.format(-2.5) }} {{ '{: d}'.format(3) }}",
    "{{ '%s %d %5.2f %r %x %o %e %g %%' % ('a', 3, 3.14159, 'q', 255, 8, 1234.5, 0.0001) }} {{ '%s' % 'x' }} {{ '%s' % [1] }} {{ '%-5s|%5s|%05d|%+d|% d' % ('a', 'b', 42, 42, 42) }} {{ '%(a)s %(b)03d' % {'a': 1, 'b': 2} }} {{ '%.2s' % 'abc' }} {{ '%c%c' % (65, 'b') }} {{ '%*d' % (5, 42) }} {{ '%d' % 3.9 }} {{ '%#x %X %#o' % (255, 255, 8) }} {{ '%.3d' % 7 }} {{ '%5.1f%%' % 99.55 }}")
# Filters.
one("{{ s|upper }} {{ s|lower }} {{ s|title }} {{ \"it's a-b (c) x2y\"|title }} {{ s|capitalize }} {{ 5|upper }} {{ none|lower }} {{ nothing|upper }}", "[{{ blank|trim }}] {{ 'xxaxx'|trim('x') }} {{ 5|trim }} {{ nil|trim }}", "{{ s|length }} {{ u|length }} {{ l|length }} {{ d|length }} {{ nothing|length }} {{ l|count }} {{ d.items()|length }}", "{{ l|join }} {{ l|join(', ') }} {{ words|join(d='/') }} {{ people|join(', ', attribute='name') }} {{ people|map(attribute='name')|join(',') }} {{ 'abc'|join('-') }} {{ [none, 1, 'a']|join(' ') }} {{ nothing|join(',') }} {{ l|join(1) }}",
    "{{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} [{{ e|first }}] [{{ e|last }}] {{ d|first }} {{ range(3)|last }} {{ d|last }}", "{{ s|list }} {{ d|list }} {{ (1, 2)|list }} {{ range(3)|list }} {{ nothing|list }}", "{{ l|map('string')|list }} {{ words|map('upper')|list }} {{ people|map(attribute='age')|list }} {{ people|map(attribute='tags.0')|list }} {{ people|map(attribute='tags', default='-')|list }} {{ words|map('replace', 'p', 'P')|list }} {{ l|map('default', 1)|list }} {{ [[1, 2], [3]]|map('length')|list }} {{ [['a', 1]]|map(attribute=0)|list }} {{ words|map('truncate', 3, true, '')|list }}",
    "{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ mixed|select('string')|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ l|select('gt', 1)|list }} {{ l|select('in', [1, 2])|list }} {{ l|reject('equalto', 1)|list }} {{ l|select('divisibleby', 3)|list }} {{ mixed|reject('none')|list }}", "{{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ people|rejectattr('tags', 'defined')|map(attribute='name')|list }} {{ people|selectattr('tags')|list|length }} {{ people|selectattr('age', '>', 26)|list|length }} {{ people|selectattr('age', 'lt', 26)|first }} {{ (people|selectattr('age', 'eq', 99)|first) is defined }} {{ people|selectattr('name', 'in', ['bob'])|list }}",
    "{{ 'yes' if people|selectattr('age', 'eq', 99) else 'no' }} {{ 'yes' if e|map('upper') else 'no' }} {{ 'yes' if people|selectattr('age', 'eq', 99)|list else 'no' }}", "{{ l|sort }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name', reverse=true)|map(attribute='name')|list }} {{ s|sort|join }} {{ d|sort }}", "{{ words|unique|list }} {{ words|unique(case_sensitive=true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }} {{ [1, 1.0, true, 2]|unique|list }}",
    "{{ l|reverse|list }} {{ s|reverse }} {{ u|reverse }} {{ d|reverse|list }} {{ (l|map('string')|reverse)|list }}", "{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(by='value') if false else '' }} {{ {'a': 3, 'b': 1}|dictsort(by='value') }} {{ {'a': 3, 'b': 1}|dictsort(reverse=true) }} {{ d|items|list }} {{ nothing|items|list }}",
    "{{ l|sum }} {{ l|min }} {{ l|max }} {{ words|min }} {{ words|max }} {{ people|sum(attribute='age') }} {{ l|sum(start=10) }} {{ e|sum }} [{{ e|min }}] {{ people|max(attribute='age') }} {{ words|max(case_sensitive=true) }} {{ [0.1, 0.2, 0.3]|sum }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 7|round }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 1234.5|round(-2) }} {{ -2.5|round }} {{ 2.55|round(1) }} {{ 1e20|round }} {{ 0.5|round|int }} {{ 17|round(-1) }}",
    "{{ num|int }} {{ '3.9'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ hex|int(base=16) }} {{ hex|int }} {{ '101'|int(0, 2) }} {{ none|int }} {{ t|int }} {{ ' 12 '|int }} {{ '1_000'|int }} {{ '1e3'|int }} {{ 'inf'|int }} {{ '-5'|int }} {{ ''|int }} {{ '0b11'|int(base=2) }} {{ '0x1F'|int(base=0) }} {{ l|int }} {{ '012'|int }}", "{{ fl|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ 'inf'|float }} {{ '-Infinity'|float }} {{ 'nan'|float }} {{ '1e5'|float }} {{ '1_0.5'|float }} {{ none|float }} {{ '.5'|float }} {{ '5.'|float }} {{ '0x1'|float }} {{ '1e400'|float }}",
    "{{ neg|abs }} {{ -2.5|abs }} {{ t|abs }} {{ 5|string + 'x' }} {{ none|string }} {{ l|string }} {{ 1.0|string }}", "{{ d|tojson }} {{ mixed|tojson }} {{ s|tojson }} {{ u|tojson }} {{ html|tojson }} {{ nil|tojson }} {{ t|tojson }} {{ f|tojson }} {{ huge|tojson }} {{ tiny|tojson }} {{ 'a\\n\\t\"\\\\ \\x00\\x7f\\u2028'|tojson }} {{ (1, 2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ []|tojson }} {{ {}|tojson }} {{ 1e400|tojson }}",
    "{{ d|tojson(indent=2) }}\n{{ mixed|tojson(indent=4) }}\n{{ e|tojson(indent=2) }} {{ ed|tojson(indent=2) }}\n{{ [[], {}]|tojson(indent=1) }}\n{{ d|tojson(indent='--') }}\n{{ d|tojson(indent=0) }}\n{{ l|tojson(indent=none) }}", "{{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',', ':')) }} {{ u|tojson(ensure_ascii=true) }} {{ '👍'|tojson(true) }} {{ d|tojson(indent=2, separators=(';', '=')) }}", "{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 123|replace(2, 'x') }} {{ s|replace('zz', 'y') }}",
    "{{ html|escape }} {{ html|e }} {{ html|safe }} {{ html|e|e }} {{ html|forceescape }} {{ ('<'|safe) + '<' }} {{ '<' + ('<'|safe) }} {{ ('<'|safe) ~ '<' }} {{ ('a'|e) ~ 'b' }} {{ [html|safe] }} {{ ('<b>'|safe)|upper + '<' }} {{ ('<'|safe)[0] + '<' }}", "{{ lines|indent }}|\n{{ lines|indent(2) }}|\n{{ lines|indent(2, true) }}|\n{{ lines|indent(2, blank=true) }}|\n{{ lines|indent('> ', first=true) }}|{{ ''|indent }}|{{ 'a\\n'|indent }}|", "{{ s|truncate(8) }} {{ s|truncate(8, true) }} {{ s|truncate(8, false, '!') }} {{ s|truncate(14) }} {{ s|truncate(8, leeway=0) }} {{ s|truncate(3) }}", "[{{ s|center(30) }}] [{{ 'ab'|center(5) }}] {{ s|wordcount }} {{ '%s-%s'|format(1, 'b') }} {{ '%(x)s'|format(x=1) }}",
    "{{ l|batch(2)|list }} {{ l|batch(2, 0)|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }} {{ people|groupby('age')|list }} {% for age, group in people|groupby('age') %}{{ age }}:{{ group|map(attribute='name')|join('+') }} {% endfor %}{{ people|groupby('tags.0', default='none')|map('first')|list }}", "{{ s|attr('upper') is defined }} {{ d|attr('b') is defined }} {{ d|attr('items') is defined }}", "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %B %Y %H:%M:%S %j %a %%') }}",
    "{{ ns is defined }} {% set ns = namespace(a=1) %}{{ ns }} {{ ns.a is defined }}", "{{ words|map('lower')|unique|sort|join(' ')|title }}", "{{ (l|map('string')|list)[0] }} {{ (l|map('string'))[0] is defined }}", "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "{{ l|list|tojson|length }}", "{{ 'a' if 'x' in d else 'b' }} {{ d.items()|list|first|last }}", "{{ messages is defined and messages|length }}", "{{ s.split()|map('capitalize')|join(' ') }} {{ s|list|map('upper')|join }}",
    "{{ ['a', 'b']|map('upper')|map('lower')|list }}", "{{ 'x' * 3 if n > 3 else '' }}{{ [1, 2, 3][n - 6] }}", "{{ people[0]['na' ~ 'me'] }} {{ people[-1].name }} {{ people|length - 1 }}", "{{ s.upper().lower().title().split(' ')[1:]|join('+') }}", "{{ [1, 2] in [[1, 2]] }} {{ {'a': 1} == {'a': 1.0} }} {{ d.b == d['b'] }} {{ s == s|string }}", "{{ (n, f)|max }} {{ [n, f]|min }} {{ [[2, 1], [1, 9]]|sort }} {{ ['b', ('a')]|sort }}", "{{ n|float|string ~ f|int }}")
# Errors.
one("{{ nothing.x }}", "{{ d.zz.y }}", "{{ nothing + 1 }}", "{{ nothing() }}", "{{ nil.x.y }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 'a' < 1 }}", "{{ n() }}", "{{ s|nofilter }}", "{{ s is notest }}", "{% for x in n %}{% endfor %}", "{% for x in nil %}{% endfor %}", "{{ n|length }}", "{{ l.append(4) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ raise_exception('told: ' ~ n) }}", "{% if messages %}{{ raise_exception('no') }}{% endif %}ok",
    "{% set x.y = 1 %}", "{% set d.y = 1 %}", "{% for a, b in [1] %}{% endfor %}", "{% set a, b = [1, 2, 3] %}", "{% if %}{% endif %}", "{% if n %}", "{% endif %}", "{{ n", "{% if n %}{% endfor %}", "{{ n }", "{# open", "{% raw %}open", "{{ 'open }}", "{{ (1 }}", "{{ 1) }}", "{{ [1, }}", "{% for x l %}{% endfor %}", "{% for in l %}{% endfor %}", "{% set = 1 %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{{ a b }}", "{{ | upper }}", "{{ n | }}", "{{ n is }}", "{{ .x }}", "{{ x. }}", "{{ $ }}", "{{ n is odd is even }}", "{% unknown %}", "{% else %}", "{% macro %}{% endmacro %}",
    "{% macro f(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ f(**d, 1) }}", "{% break %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% do l.append(1) %}", "{{ d|dictsort(by='x') }}", "{{ [1, 'a']|sort }}", "{{ l|map }}", "{{ l|map('nofilter')|list }}", "{{ people|selectattr }}", "{{ s.index('zz') }}", "{{ l.index(99) }}", "{{ ''.join([1]) }}", "{{ s.split('') }}", "{{ {[1]: 2} }}", "{{ {} in {} }}", "{{ 1 in 'a' }}", "{{ 1 in 1 }}", "{{ s[::0] }}", "{{ range(0, 5, 0) }}", "{{ range(1000000) }}", "{{ range() }}", "{{ '%d' % 'a' }}", "{{ '%s %s' % 1 }}", "{{ '%s' % (1, 2) }}", "{{ '%q' % 1 }}", "{{ '{}'.format() }}", "{{ '{x}'.format(1) }}", "{{ '{'.format() }}", "{{ '{:d}'.format('a') }}",
    "{{ nothing|tojson }}", "{{ l|map('string')|tojson }}", "{{ range|tojson }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}", "{{ l|batch }}", "{{ -'a' }}", "{{ -nothing }}", "{{ nothing[0] }}", "{{ nil[0].x }}", "{{ d|round }}", "{{ s|abs }}", "{{ l|sum(start='a') }}", "{{ words|sum }}", "{{ n|items|list }}", "{{ n|list }}", "{{ n|first }}", "{{ l|map('upper')|last }}", "{{ n|join }}", "{{ loop.index }}", "{{ namespace(_x=1) }}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{{ 1 ** 'a' }}", "{{ l * l }}", "{{ l + (1,) }}", "{{ d + d }}", "{{ l|replace }}", "{{ s|indent(width=none) }}", "{{ 5|indent }}", "{% call n() %}{% endcall %}", "{% call n %}{% endcall %}", "{{ caller() }}", "{% for x in l %}{{ loop() }}{% endfor %}", "{{ 'x' is odd }}", "{{ n is divisibleby 0 }}", "{{ s|truncate(1) }}", "{{ 0 ** -1 }}",
    "{{ s.startswith(1) }}", "{{ s.replace('a') }}", "{{ s.nomethod() }}", "{{ s.nomethod }}|", "{{ 1.5.x }}|", "{{ dict(1) }}", "{{ dict([1]) }}", "{{ people|groupby }}", "{{ l|min(attribute='x') }}", "{{ [none, 1]|sort }}", "{{ [{}]|unique|list }}", "{{ l[[1]] }}|{{ d[[1]] }}|{{ l['a'] }}|{{ n[0] }}|", "{{ n[1:] }}", "{{ nil[1:] }}", "{{ d[1:] }}", "{{ l['a':] }}", "{{ nothing[1:] }}", "{{ 'ΑΣ ΑΣΑ Σ ΑΣ.Β ΑΣ\u0301'.lower() }} {{ 'ΟΔΟΣ'.title() }} {{ 'ŉǰΐև'.upper() }} {{ 'ﬁx ǆ'.title() }} {{ 'ﬁx'.capitalize() }} {{ 'İI'.lower() }} {{ 'Straße ΣΑΣ'.casefold() }} {{ 'ßÄ'.swapcase() }} {{ 'ﬀ'|title }} {{ 'ß'|capitalize }}", "{{ l|select('nope')|list }}", "{{ [1]|select('divisibleby')|list }}", "{% set ns = namespace(x=[]) %}{% set ns.x = ns.x + [1] %}{{ ns.x }}{{ ns.x.append(1) }}")

EXPRESSIONS = random.Random(11)


def expression(kind, depth):
    """A random expression that mostly has the wanted kind of value."""
    r = EXPRESSIONS
    sub = lambda k: expression(k, depth - 1)
    if depth <= 0 or r.random() < 0.15:
        return r.choice({"int": ["0", "1", "2", "7", "-3", "n", "neg", "10", "l[0]", "l|length"], "float": ["f", "0.5", "2.25", "-1.5", "1e3", "tiny"], "str": ["s", "u", "'a'", "'  pad '", "''", "words[0]", "'x,y,z'", "'Ünï'", "num", "html", "lines"],
                         "list": ["l", "words", "[1, 'a']", "e", "mixed", "range(4)", "(1, 2)", "d.keys()|list", "people|map(attribute='name')|list"], "dict": ["d", "ed", "{'p': 1}", "people[0]", "d.C"], "bool": ["t", "no", "true", "false", "nil", "nothing"]}[kind])
    if kind == "int":
        return r.choice([lambda: f"({sub('int')} {r.choice(['+', '-', '*', '//', '%'])} {sub('int')})", lambda: f"{sub('str')}|length", lambda: f"({sub('list')})|length", lambda: f"({sub('float')})|int", lambda: f"({sub('str')}).count({sub('str')})", lambda: f"({sub('str')}).find({sub('str')})",
                         lambda: f"({sub('int')} if {sub('bool')} else {sub('int')})", lambda: f"({sub('int')})|abs", lambda: f"({sub('str')})|int({sub('int')})", lambda: f"({sub('str')})|wordcount"])()
    if kind == "float":
        return r.choice([lambda: f"({sub('float')} {r.choice(['+', '-', '*', '/', '//', '%'])} {sub(r.choice(['int', 'float']))})", lambda: f"({sub('int')})|float", lambda: f"({sub('float')})|round({r.randint(-1, 3)})", lambda: f"({sub('int')} / {sub('int')})", lambda: f"({sub('float')})|round({r.randint(0, 2)}, '{r.choice(['ceil', 'floor'])}')"])()
    if kind == "str":
        m = r.choice(["upper", "lower", "title", "capitalize", "strip", "lstrip", "rstrip", "swapcase"])
        return r.choice([lambda: f"({sub('str')} ~ {sub(r.choice(['int', 'str', 'float', 'bool', 'list']))})", lambda: f"({sub('str')}).{m}()", lambda: f"({sub('str')})|{r.choice(['upper', 'lower', 'title', 'capitalize', 'trim', 'reverse', 'e', 'tojson', 'string', 'indent'])}", lambda: f"({sub('str')})[{r.randint(-4, 4)}:{r.randint(-4, 9)}]",
                         lambda: f"({sub('str')})[::{r.choice([-2, -1, 2, 3])}]", lambda: f"({sub('str')} + {sub('str')})", lambda: f"({sub('str')}).replace({sub('str')}, {sub('str')})", lambda: f"({sub('list')})|join({sub('str')})", lambda: f"({sub('str')} * {r.randint(0, 3)})", lambda: f"({sub(r.choice(['list', 'dict', 'int', 'float']))})|{r.choice(['tojson', 'string'])}",
                         lambda: f"({sub('str')} if {sub('bool')} else {sub('str')})", lambda: f"'%s|%5s' % ({sub('str')}, {sub('int')})", lambda: f"'{{}}:{{:>4}}'.format({sub('str')}, {sub('int')})", lambda: f"({sub('list')})|{r.choice(['first', 'last'])}|default({sub('str')})", lambda: f"({sub('str')})|truncate({r.randint(3, 12)})", lambda: f"({sub('str')})|center({r.randint(0, 12)})"])()
    if kind == "list":
        return r.choice([lambda: f"({sub('list')})|{r.choice(['list', 'reverse|list', 'unique|list'])}", lambda: f"({sub('list')})|map('string')|sort", lambda: f"({sub('str')}).split({r.choice(['', '' , repr(','), repr(' ')])})", lambda: f"({sub('list')})[{r.randint(-3, 3)}:]", lambda: f"[{sub('int')}, {sub('str')}, {sub('bool')}]", lambda: f"({sub('str')})|list",
                         lambda: f"({sub('list')})|select('{r.choice(['string', 'number', 'defined', 'none'])}')|list", lambda: f"({sub('dict')}).items()|list", lambda: f"({sub('dict')})|dictsort", lambda: f"({sub('list')})|map('default', {sub('int')})|list", lambda: f"({sub('list')})|batch({r.randint(1, 3)})|list", lambda: f"(({sub('list')})|list + [{sub('int')}])",
                         lambda: f"({sub('str')}).rsplit(none, {r.randint(0, 2)})", lambda: f"people|{r.choice(['selectattr', 'rejectattr'])}('{r.choice(['age', 'name', 'tags'])}'{r.choice(['', ', %r' % 'defined', ', %r, 30' % 'eq'])})|map(attribute='name')|list"])()
    if kind == "dict":
        return r.choice([lambda: f"{{{sub('str')}: {sub('int')}, 'k': {sub('list')}}}", lambda: f"dict(a={sub('int')}, b={sub('str')})", lambda: f"dict({sub('dict')}, z={sub('bool')})"])()
    return r.choice([lambda: f"({sub('int')} {r.choice(['<', '<=', '==', '!=', '>', '>='])} {sub(r.choice(['int', 'float']))})", lambda: f"(not {sub('bool')})", lambda: f"({sub('bool')} {r.choice(['and', 'or'])} {sub(r.choice(['bool', 'str', 'int']))})", lambda: f"({sub('str')} {r.choice(['in', 'not in', '==', '<'])} {sub('str')})", lambda: f"({sub('int')} {r.choice(['in', 'not in'])} {sub('list')})",
                     lambda: f"({sub(r.choice(['str', 'int', 'list', 'dict', 'bool', 'float']))} is {r.choice(['', 'not '])}{r.choice(['string', 'number', 'mapping', 'sequence', 'iterable', 'none', 'defined', 'true', 'boolean', 'integer', 'float'])})", lambda: f"({sub('str')}).{r.choice(['startswith', 'endswith'])}({sub('str')})", lambda: f"({sub('list')} == {sub('list')})", lambda: f"({sub('int')} is {r.choice(['odd', 'even', 'eq 1', 'divisibleby 3'])})"])()


def statement(depth):
    r = EXPRESSIONS
    kind = r.choice(["int", "str", "list", "dict", "bool", "float"])
    dash = lambda: r.choice(["", "", "-", "+"])
    if depth <= 0:
        return r.choice(["{{" + r.choice(["", "-"]) + " " + expression(kind, 1) + " " + r.choice(["", "-"]) + "}}", "text", "\n", "  ", " \n  ", "{#" + r.choice(["", "-"]) + " c " + r.choice(["", "-"]) + "#}"])
    body = lambda: "".join(statement(depth - 1) for _ in range(r.randint(1, 3)))
    tag = lambda s: "{%" + dash() + " " + s + " " + dash() + "%}"
    return r.choice([lambda: tag(f"if {expression('bool', 1)}") + body() + tag("else") + body() + tag("endif"), lambda: tag(f"for x in {expression('list', 1)}") + "{{ x }}" + body() + tag("endfor"), lambda: tag(f"set v = {expression(kind, 2)}") + "{{ v }}", lambda: tag("set v") + body() + tag("endset") + "[{{ v }}]",
                     lambda: tag(f"for k, v in ({expression('dict', 1)}).items()") + "{{ k }}{{ loop.index }}" + body() + tag("endfor"), lambda: tag(f"macro m(a, b={expression('int', 0)})") + "{{ a }}{{ b }}" + body() + tag("endmacro") + f"{{{{ m({expression(kind, 1)}) }}}}", lambda: tag("filter upper") + body() + tag("endfilter"), lambda: body(), lambda: "\n  " + tag(f"if {expression('bool', 0)}") + "\n" + body() + "\n  " + tag("endif") + "\n"])()


for n in range(420):
    SMALL.append("{{ " + expression(EXPRESSIONS.choice(["int", "float", "str", "str", "list", "dict", "bool"]), 1 + n % 4) + " }}")
for n in range(180):
    SMALL.append("".join(statement(1 + n % 2) for _ in range(3)))


def render(template, variables):
    try:
        compiled = hf._compile_jinja_template(template)
    except jinja2.TemplateSyntaxError as e:
        return {"error": "syntax", "line": e.lineno}
    except (jinja2.TemplateError, SyntaxError) as e:
        return {"error": "syntax"}
    try:
        return {"text": compiled.render(**variables)}
    except jinja2.exceptions.TemplateError as e:
        return {"error": "refused", "message": str(e)} if type(e) is jinja2.exceptions.TemplateError else {"error": "run", "type": type(e).__name__}
    except Exception as e:
        return {"error": "run", "type": type(e).__name__}


cases, dropped, errors = [], 0, 0
for file in sorted(os.listdir(HERE + "/templates")):
    template = open(HERE + "/templates/" + file).read()
    results = {name: render(template, v) for name, v in VARIABLES.items() if name != "values"}
    cases.append({"file": file, "results": results})
for template in dict.fromkeys(SMALL):
    result = render(template, VARIABLES["values"])
    if re.search(r" at 0x|<generator|<built-in|_io\.|Undefined.*object", result.get("text", "")) or len(result.get("text", "")) > 4000:
        dropped += 1  # addresses of this run
        continue
    errors += "error" in result
    cases.append({"template": template, "results": {"values": result}})
json.dump({"now": [2026, 3, 7, 9, 5, 2], "variables": VARIABLES, "cases": cases}, open(HERE + "/jinja.json", "w"), ensure_ascii=False)
print(len(cases), "templates,", sum(len(c["results"]) for c in cases), "results,", errors, "errors among the small ones,", dropped, "dropped")
