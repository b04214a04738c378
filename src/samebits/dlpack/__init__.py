"""DLPack: how a layout is written in its terms (`encoding`), what others hand over (`consume`), what we do (`produce`).

The protocol is that of dlpack.h 1.3 and of the Python array API. A capsule is named `dltensor` (legacy) or
`dltensor_versioned`; the consumer renames it to `used_...` and calls the deleter once when it is done; an unused
capsule calls it when it dies.
"""

from samebits.dlpack.consume import Producer, receive
from samebits.dlpack.encoding import Encoding, Mode, decode, encode
from samebits.dlpack.produce import capsule_of

__all__ = ["Encoding", "Mode", "Producer", "capsule_of", "decode", "encode", "receive"]
