"""
The wire between a client and a bookie: ids, errors, frames, codecs, digests.  Pure: no sockets, no clock, no files.
"""
