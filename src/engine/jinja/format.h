#pragma once
// Python's two ways of formatting: "%5.2f" % x and "{:>5}".format(x).
#include "jinja/value.h"

namespace vitrine::jinja {

/// format % values: a tuple gives one value per conversion, a dict serves %(name)s, anything else is the one value.
Text format_percent(Meter& meter, const Text& format, const Value& values);

/// format.format(*positional, **named). `attribute` looks up {0.name} and {0[key]} as the template would.
using Lookup = std::function<Value(const Value& of, const std::string& name, bool is_attribute)>;
Text format_braces(Meter& meter, const Text& format, const Arguments& arguments, const Lookup& lookup);

/// format(value, spec): [[fill]align][sign][#][0][width][,_][.precision][type].
Text format_value(Meter& meter, const Value& value, std::string_view spec);

}  // namespace vitrine::jinja
