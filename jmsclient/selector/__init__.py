"""Selectors: which messages a consumer wants, said in a condition on their properties and headers.

Owns the language of Jakarta Messaging 3.1 section 3.8: `compile_selector` checks a text and makes it something to call. It must not
know who selects, and sees the values of messages and errors only.

Where the specification leaves room: an exact number is a Java long, whether it is a literal or a property, and wraps at 64 bits;
a division by zero is unknown; values of unlike types are neither equal nor unequal, so `size <> 'big'` is false where size is a
number; what is no text is LIKE nothing and IN nothing. Conditions may stand inside one another a hundred deep.
"""

from jmsclient.selector.compiled import Selector, compile_selector

__all__ = ["Selector", "compile_selector"]
