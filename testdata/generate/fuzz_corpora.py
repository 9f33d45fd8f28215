#!/usr/bin/env python3
"""Writes what fuzzers begin with: testdata/fuzz/*, except regressions.

    testdata/generate/fuzz_corpora.py

Files named found_* are regressions that fuzzers have found, and stay as they are.
Checksums are left 0, since the fuzzers put them right. It needs Pillow 12.3.0.
"""

import pathlib
import struct

import fuzz_images

TESTDATA = pathlib.Path(__file__).parent.parent


def write(fuzzer, files):
    folder = TESTDATA / 'fuzz' / fuzzer
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if not path.name.startswith('found_'):
            path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def piece(content):
    """The bytes of FuzzInput::Piece."""
    return struct.pack('<H', len(content)) + content


def golden(folder, names, most=None):
    """The first bytes of golden files."""
    return {
        name.split('.')[0]: (TESTDATA / folder / name).read_bytes()[:most]
        for name in names
    }


# ---- Jobs.


def jobs():
    examples = TESTDATA.parent / 'examples'
    return {
        path.name: path.read_bytes() for path in [
            examples / 'job.toml', examples / 'session.toml',
            examples / 'trainer/digits.toml', examples / 'seeds/notes.toml',
            examples / 'seeds/002_gradients.toml'
        ]
    }


# ---- Files of arrays and of records.

NPY = ('f4.npy f8.npy bool.npy fortran_3d.npy bf16.npy structured.npy '
       'object.npy version_2.npy version_3.npy rank_0.npy no_rows.npy '
       'empty_rows.npy big_endian.npy').split()


def safetensors():
    whole = golden('safetensors', ['plain.safetensors', 'metadata.safetensors'])
    files = {name: bytes(4) + content for name, content in whole.items()}
    for name, content in whole.items():
        header = 8 + struct.unpack('<Q', content[:8])[0]
        files[name + '_header'] = (
            struct.pack('>I', len(content) - header) + content[:header])
    for name, text in {
            'large': '{"a":{"dtype":"F32","shape":[1024,1024],'
                     '"data_offsets":[0,4194304]}}',
            'empty_arrays': '{"a":{"dtype":"I8","shape":[0,7],'
                            '"data_offsets":[0,0]},"b":{"dtype":"BOOL",'
                            '"shape":[],"data_offsets":[0,1]}}',
            'escapes': '{"\\u00e9\\ud83d\\ude00\\"\\\\":{"dtype":"U8",'
                       '"shape":[2],"data_offsets":[0,2]}}',
            'nested': '{"__metadata__":{"a":"b","c":"{}"},"x":{"shape":[1],'
                      '"data_offsets":[0,8],"dtype":"F64"}}',
    }.items():
        more = {'large': 4194304, 'empty_arrays': 1, 'escapes': 2, 'nested': 8}
        files[name] = (struct.pack('>I', more[name]) +
                       struct.pack('<Q', len(text)) + text.encode())
    return files


def records(*contents):
    return b''.join(
        struct.pack('<QI', len(content), 0) + content + bytes(4)
        for content in contents)


def index(lengths, documents, type=8, width=2, version=1):
    """An .idx of Megatron's: the lengths of sequences, and the documents."""
    begins = [width * sum(lengths[:i]) for i in range(len(lengths))]
    return b'MMIDIDX\0\0' + struct.pack(
        f'<QBQQ{len(lengths)}i{len(lengths)}q{len(documents)}q', version, type,
        len(lengths), len(documents), *lengths, *begins, *documents)


def tokens():
    """Options, an .idx, and the data, as token_files_fuzz.cc reads them."""

    def case(bits, length, pair, data, stride=b''):
        return bytes([bits, length]) + stride + piece(pair) + data

    data = bytes(range(42))
    small = index([3, 4, 5, 9], [0, 2, 2, 4])
    folder = TESTDATA / 'tokens'
    files = {
        name: case(64 + 2, 0, (folder / f'{name}.idx').read_bytes(),
                   (folder / f'{name}.bin').read_bytes())
        for name in ('megatron_u8', 'megatron_f64', 'megatron_modes')
    }
    files.update({
        name: case(128 + 5 * 8 + 1, 9, b'', (folder / f'{name}.bin').read_bytes(),
                   b'\0')
        for name in ('llmc_gpt2', 'llmc_llama3')
    })
    return {
        **files,
        'windows': case(128 + 5 * 8 + 3, 3, small, data, b'\2'),
        'windows_of_documents': case(5 * 8, 3, small, data, b'\0'),
        'documents': case(64 + 5 * 8 + 1, 0, small, data),
        'cut_documents': case(64 + 5 * 8 + 2 + 4, 4, small, data),
        'bytes': case(128 + 4 * 8, 1, index([42], [0, 1], 1, 1), data, b'\1'),
        'no_documents': case(64, 0, index([], [0]), b''),
        'all_empty': case(64, 0, index([0, 0], [0, 0, 1, 2, 2]), b''),
        'version': case(64, 0, index([21], [0, 1], version=2), data),
        'type': case(64, 0, index([21], [0, 1], 9), data),
        'negative': case(64, 0, index([22, -1], [0, 1, 2]), data),
        'gap': case(64, 0, index([10, 11], [0, 1, 2], width=3), data),
        'too_long': case(64, 0, index([22], [0, 1]), data),
        'too_short': case(64, 0, index([20], [0, 1]), data),
        'backwards': case(64, 0, index([10, 11], [0, 2, 1, 2]), data),
        'late': case(64, 0, index([10, 11], [1, 2]), data),
        'early': case(64, 0, index([10, 11], [0, 1]), data),
        'torn': case(64, 0, small[:-1], data),
        'header': case(64, 0, small[:33], data),
        'large': case(64, 0, small[:18] + b'\xff' * 16 + small[34:], data),
    }


# ---- Shards of samples.


def cut(shard, *ranges, end=1024):
    """Blocks of a golden tar file, and zeros."""
    content = (TESTDATA / 'tar' / f'{shard}.tar').read_bytes()
    return b''.join(
        content[512 * a:512 * b] for a, b in ranges) + bytes(end)


def large_field(header):
    """A header whose size is written to the base 256, as for large members."""
    size = int(header[124:135], 8)
    header = (header[:124] + b'\x80' + size.to_bytes(11, 'big') +
              header[136:148] + b' ' * 8 + header[156:])
    return header[:148] + b'%06o\0 ' % sum(header) + header[156:]


def archives():
    """Tar files of at most 4 KiB, whose checksums are right."""
    ustar = cut('gnu_ustar', (0, 6))
    size = cut('tarfile_gnu', (12, 14))
    return {
        **golden('tar', ['gzip.tar', 'bzip2.tar', 'xz.tar', 'zstd.tar']),
        'v7': cut('gnu_v7', (0, 6)),
        'ustar': ustar,
        'two_parts': cut('gnu_ustar', (12, 18)),
        'prefix': cut('gnu_ustar', (24, 28)),
        'hidden': cut('gnu_ustar', (6, 12)),
        'bsdtar': cut('bsdtar_ustar', (0, 5)),
        'gnu': cut('gnu_gnu', (0, 3), (23, 25)),
        'gnu_long_name': cut('gnu_gnu', (15, 19)),
        'gnu_long_link': cut('gnu_gnu', (25, 30)),
        'gnu_hard_link': cut('gnu_gnu', (30, 35)),
        'pax': cut('gnu_pax', (5, 9)),
        'pax_global': cut('gnu_pax', (0, 2), (5, 9)),
        'pax_long_name': cut('gnu_pax', (25, 29)),
        'pax_of_bsdtar': cut('bsdtar_pax', (3, 7)),
        'pax_of_webdataset': cut('webdataset', (0, 4)),
        'pax_of_nothing': cut('webdataset', (4, 6)),
        'pax_size': cut('tarfile_pax', (25, 29)),
        'types': cut('tarfile_ustar', (10, 14)),
        'base_256': cut('tarfile_gnu', (12, 18)),
        'base_256_size': large_field(size[:512]) + size[512:],
        'sparse': cut('sparse', (2, 4)),
        'sparse_extended': cut('sparse', (4, 12), end=0),
        'sparse_pax': cut('sparse_pax', (4, 9)),
        'no_end': ustar[:-1024],
        'truncated': ustar[:-1024 - 500],
        'truncated_header': ustar[:-1024 - 1000],
        'truncated_pax': cut('gnu_pax', (5, 7), end=0),
        'half_an_end': ustar[:-512],
        'more': cut('gnu_ustar', (1, 3)) + b'more',
        'checksum': ustar.replace(b'train/0000.jpg', b'train/0000.gif'),
        'empty': bytes(1024),
    }


INDICES = {
    'version_1_1': 'v1.1 2\ncls 512 1 txt 1536 16\ntxt 2560 16\n',
    'another_version': 'v1.3 1\ncls 512 1 a.cls\n',
    'no_version': '1\ncls 512 1 a.cls\n',
    'no_samples': 'v1.2 0\n',
    'no_count': 'v1.2\ncls 512 1 a.cls\n',
    'too_few': 'v1.2 2\ncls 512 1 a.cls\n',
    'too_many': 'v1.2 1\ncls 512 1 a.cls\ncls 1536 1 b.cls\n',
    'no_such_count': 'v1.2 9223372036854775807\ncls 512 1 a.cls\n',
    'torn': 'v1.2 1\ncls 512 1 a.cls txt 15',
    'no_name': 'v1.2 1\ncls 512 1\n',
    'no_line_end': 'v1.2 1\ncls 512 1 a.cls',
    'carriage_return': 'v1.2 1\r\ncls 512 1 a.cls\r\n',
    'empty_line': 'v1.2 2\n\ncls 512 1 a.cls\n',
    'twice': 'v1.2 1\ncls 512 1 a.cls cls 1536 1 a.CLS\n',
    'two_keys': 'v1.2 1\ncls 512 1 a.cls txt 1536 16 b.txt\n',
    'spaces': 'v1.2 1\ntxt 512 16 a b.txt cls 1536 1 a b.cls\n',
    'two_parts': 'v1.2 1\nleft.jpg 512 256 v1.5/a.left.jpg\n',
    'backwards': 'v1.2 2\ncls 1536 1 b.cls\ncls 512 1 a.cls\n',
    'same_place': 'v1.2 2\ncls 512 1 a.cls\ncls 512 1 b.cls\n',
    'not_a_block': 'v1.2 1\ncls 513 1 a.cls\n',
    'in_the_header': 'v1.2 1\ncls 0 1 a.cls\n',
    'negative': 'v1.2 1\ncls 512 -1 a.cls\n',
    'large': 'v1.2 1\ncls 9223372036854775296 9223372036854775807 a.cls\n',
    'too_large': 'v1.2 1\ncls 512 18446744073709551617 a.cls\n',
    'no_number': 'v1.2 1\ncls x 1 a.cls\n',
    'zeros': 'v1.2 1\ncls 512 1 a\0.cls\n',
    'all_of_plain': 'v1.2 2\ncls 512 1 a.cls txt 1536 16 a.txt\n'
                    'TXT 3072 16 b/ä.TXT left.jpg 5120 600 b/ä.left.jpg\n',
    'all_of_long': f'v1.2 3\ncls 512 1 a.cls\ncls 2560 1 {"n" * 110}.cls\n'
                   'txt 4608 1 ä.txt\n',
}

# The key and the text, as json_number_fuzz.cc reads them.
JSON_NUMBERS = {
    'number': ('a', '{"a": 7}'),
    'fraction': ('a', '{"a":-0.5e+09,"b":[1,2]}'),
    'nested': ('size.width', '{"size": {"height": 3, "width": 4}, "x": null}'),
    'words': ('b', '{"a": NaN, "b": -Infinity, "c": true, "d": false}'),
    'truth': ('a', ' {\n\t"a" : true\r\n}\n'),
    'twice': ('a.b', '{"a": {"b": 1}, "a": {"b": 2, "b": 3}}'),
    'lost': ('a.b', '{"a": {"b": 1}, "a": 2}'),
    'escapes': ('\\u0061\\"', '{"x": "\\\\\\n\\/\\"}", "\\u0061\\"": 1}'),
    'lists': ('a', '{"b": [[], [1, [2.5, {}]], "]"], "a": 1}'),
    'empty_key': ('.', '{"": {"": 1e3}}'),
    'deep': ('a', '{"a": 1, "b": ' + 99 * '[' + 99 * ']' + '}'),
    'too_deep': ('a', '{"a": 1, "b": ' + 100 * '[' + 100 * ']' + '}'),
    'text': ('a', '{"a": "7"}'),
    'object': ('a', '{"a": {"b": 7}}'),
    'list': ('a', '[{"a": 7}]'),
    'no_key': ('b', '{"a": 7}'),
    'comma': ('a', '{"a": 7,}'),
    'zero': ('a', '{"a": 07}'),
    'torn': ('a', '{"a": 7, "b": "\\u00'),
    'more': ('a', '{"a": 7} {}'),
}

JSON_VALUES = {
    'line': '{"format":"lockstep metrics","version":1,"time":1764547200.25,'
            '"rank":0,"size":2,"pid":4711}\n',
    'metrics': '{"step":100,"time":1764547200.5,"loss":-2.5e-3,"nan":null}',
    'words': ' [ true , false , null ]\r\n',
    'integers': '[0,-0,9223372036854775807,-9223372036854775808,'
                '9223372036854775808,9007199254740993]',
    'reals': '[0.0,-0.0,5e0,0.1,1E+23,1.7976931348623157e308,5e-324,1e-999]',
    'escapes': '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u00e4\\ud83d\\ude00"',
    'characters': '{"mé€😀":"\x7f"}',
    'nested': '{"a":{"b":[[],{},[{"":1}]]},"b":[1,2.5,"x"]}',
    'many': '{' + ','.join(f'"n{i}":{i}' for i in range(40)) + '}',
    'many_twice': '{' + ','.join(f'"n{i % 39}":1' for i in range(40)) + '}',
    'twice': '{"a":1,"\\u0061":2}',
    'deep': 32 * '[' + 32 * ']',
    'too_deep': 33 * '[' + 33 * ']',
    'empty': '',
    'words_of_python': '[NaN,-Infinity,True]',
    'too_large': '1e999',
    'zero': '-01',
    'comma': '{"a":[1,2],}',
    'control_character': '"a\nb"',
    'half': '"\\ud800x"',
    'torn': '{"step":100,"loss":0.',
    'more': '{} {}',
}

# ---- States.


def sampler_state(epoch, position, steps, all_steps, ranges=(), shards=0):
    version = 2 if shards else 1
    return (struct.pack('<4sBBH4q6Q4QQ', b'LSSP', version, len(ranges), 0,
                        epoch, position, steps, all_steps, *[0] * 6, shards,
                        *[0] * 4) +
            b''.join(struct.pack('<qq', *each) for each in ranges))


def loader_state(seed, state):
    return struct.pack('<4sB3sQQQQ', b'LSLD', 1, bytes(3), seed, len(state), 0,
                       0) + state


SAMPLER_STATES = {
    'start': sampler_state(0, 0, 0, 0),
    'middle': sampler_state(3, 24, 2, 17),
    'end': sampler_state(2, 57, 5, 15),
    'skips': sampler_state(1, 12, 1, 6, [(15, 20), (30, 31), (40, 57)]),
    'skips_all': sampler_state(1, 0, 0, 5, [(0, 57)]),
    'joined_skips': sampler_state(1, 0, 0, 5, [(30, 40), (10, 20), (20, 30)]),
    'no_such_range': sampler_state(0, 0, 0, 0, [(9, 9)]),
    'behind_the_end': sampler_state(0, 58, 5, 5),
    'last_epoch': sampler_state(2**62, 0, 0, 2**62),
    'no_such_epoch': sampler_state(2**63 - 1, 0, 0, 0),
    'no_such_step': sampler_state(0, 0, 0, 2**63 - 1),
    'negative_epoch': sampler_state(-1, 0, 0, 0),
    'many_steps': sampler_state(0, 0, 2**63 - 1, 2**63 - 1),
    'shards': sampler_state(3, 24, 2, 17, [(30, 33)], shards=24),
    'no_such_shards': sampler_state(3, 24, 2, 17, shards=25),
}


# ---- Checkpoints.


def section(name, content, dtype=0, version=1):
    return struct.pack('<4sIIIQ4QQ', b'LSCS', version, len(name), dtype,
                       len(content), *[0] * 5) + name + content


def checkpoint(*sections):
    return (b'LSCP\1' + bytes(59) + b''.join(sections) + b'LSCE' + bytes(60))


WEIGHTS = section(b'weights', struct.pack('<4f', 1, 2, 3, 4), 2)
CHECKPOINTS = {
    'empty': checkpoint(),
    'sections': checkpoint(section(b'step', struct.pack('<q', 7)), WEIGHTS,
                           section(b'state', b'')),
    'twice': checkpoint(WEIGHTS, WEIGHTS),
    'newer_type': checkpoint(section(b'weights', b'', 99)),
    'newer_format': b'LSCP\2' + checkpoint()[5:],
    'no_end': checkpoint(WEIGHTS)[:-64],
    'more': checkpoint(WEIGHTS) + bytes(8),
    'no_name': checkpoint(section(b'', b'x')),
    'too_large': checkpoint(section(b'x', b'').replace(
        bytes(16), struct.pack('<QQ', 2**64 - 100, 0), 1)),
}

JOB = b'seed\t00000000deadbeef\t7\nname\t0123456789abcdef\t\n'
BEST = b'best\tlowest\t0.25\nlast\thighest\tinf\n'
CHECKPOINT_TEXTS = {
    'sections': b'\0001\t2\t16\t128\tweights\n1\t0\t8\t200\t\\000\\n\n',
    'torn': b'\0001\t2\t16\t128\n',
    'jobs': b'\1' + piece(JOB) + JOB.replace(b'7', b'8'),
    'path': b'\1' + piece(b'checkpoint.path\tx\t/a\n') + JOB,
    'best': b'\2' + struct.pack('<dQ', 0.25, 1),
    'nan': b'\2' + struct.pack('<dQ', float('nan'), 0),
    'best_values': b'\2' + BEST,
}


def sections(*chosen):
    """Sections as checkpoint_fuzz.cc reads them: name, type, version, bytes."""
    return bytes([len(chosen)]) + b''.join(
        bytes([name, dtype, 0]) + piece(content)
        for name, dtype, content in chosen)


OWN = [(0, 0, struct.pack('<q', 7)), (1, 0, JOB), (3, 0, BEST)]
REST = [(4, 2, struct.pack('<4f', 1, 2, 3, 4)), (5, 0, b'a state')]
BEST_VALUE = (2, 0, struct.pack('<dQ', 0.25, 0))
RESTORED = {
    'whole': sections(*OWN, *REST) + sections(BEST_VALUE, *REST),
    'another_model': sections(*OWN, *REST) + sections(BEST_VALUE, REST[1]),
    'missing': sections(*OWN, REST[0]) + sections(*REST),
    'not_added': sections(*OWN, *REST, (6, 0, b'x')) + sections(),
    'another_size': sections(*OWN, (4, 2, bytes(12)), REST[1]) + sections(),
    'no_step': sections(*REST) + sections(),
    'negative_step': sections((0, 0, struct.pack('<q', -1)), *REST) + sections(),
    'finished': sections(*OWN, *REST) + sections() +
                piece(b'lockstep finished 1\nsteps 7\njob 0123\n'),
}

STORE = {
    'value': piece(b'lockstep%2fjob%2faddress\n127.0.0.1:4000') +
             piece(b'a/key') + b'a value',
    'another_key': piece(b'another\nvalue') + piece(b'../..') + b'',
    'empty': piece(b'') + piece(b''),
    'long_key': piece(b'lockstep%2fjob%2faddress\n') + piece(b'\xff' * 512),
    'too_long_key': piece(b'\n') + piece(b'k' * 513),
    'no_line': piece(b'lockstep%2fjob%2faddress') + piece(b'new.XXXXXX'),
}

FACTS = {
    'steps': b'steps 12 train\n',
    'done': b'steps 12 train\ndone 1 train\ntold 1 train\n',
    'left': b'left 1 train\nsteps 0 train\nleft 3 valid\n',
    'over': b'over 1 train\nread 2 train\n',
    'escapes': b'done 1 tra\\151n\n',
    'no_number': b'done x train\n',
    'no_such_step': b'steps 9223372036854775807 train\n',
    'negative': b'steps -1 train\ndone -1 train\n',
}

# ---- Rendezvous. Numbers have 8 bytes, and a text comes behind its length.


def number(value):
    return struct.pack('<Q', value % 2**64)


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return number(len(value)) + value


def numbers(*values):
    return number(len(values)) + b''.join(map(number, values))


def frame(kind, payload=b''):
    return struct.pack('<IB', len(payload), kind) + payload


def peer(rank):
    return number(rank) + text('host') + number(100 + rank) + text('about')


BLAME = ('{"cause":"lost","code":"UNAVAILABLE","ranks":[{"rank":1,"host":"h",'
         '"pid":7,"last":"barrier()","age":1.5}],"more":0,"operation":"",'
         '"number":0,"has_begun":true}')
CLAIM = number(3) + text('a job') + peer(1)
REASON = number(14) + text('rank 1 is lost') + text(BLAME)
HANDSHAKE = {
    'frames': b'\0' + frame(1) + frame(3, CLAIM) + frame(6, peer(2)) +
              frame(7) + frame(9, b'all ranks are there'),
    'reasons': b'\0' + frame(5, REASON) + frame(8, number(16) + text('no')),
    'torn': b'\0' + frame(3, CLAIM)[:-1],
    'large': b'\0' + struct.pack('<IB', 2**32 - 1, 10),
    'hub': b'\1\0\0\0' + piece(b'a payload'),
    'spoke': b'\2\0\0\0' + piece(b'a payload'),
    'changed': b'\1\0\7\1' + piece(b'a payload'),
    'stranger': b'\1\1\0\0' + piece(b'') + b'lockstep spoke \n' + number(4) +
                number(1) + bytes(32),
}

GREETING = b'lockstep spoke \n' + number(4) + number(1) + bytes(32)
HUB_DOOR = {
    'stranger': b'\0\0' + piece(b'GET / HTTP/1.1\r\n'),
    'another_token': b'\0\0' + piece(GREETING + frame(1, bytes(32))),
    'another_version': b'\0\0' + piece(GREETING.replace(number(4), number(5))),
    'no_token': b'\0\0' + piece(GREETING.replace(number(1), number(0))),
    'no_proof': b'\1\0' + piece(frame(3, CLAIM)),
    'claims': b'\2\0' + piece(CLAIM) + b'\2\0' + piece(CLAIM[:-1]),
    'another_job': b'\2\0' + piece(number(3) + text('b') + peer(1)),
    'beats': b'\3\1' + piece(frame(9) + frame(9, b'x')),
    'gives_up': b'\3\1' + piece(frame(11)) + b'\3\1' + piece(b''),
    'all_join': b'\3\1' + piece(b'') + b'\3\2' + piece(frame(10, b'hello')) +
                b'\3\2' + piece(b''),
}
SPOKE_JOIN = {
    'stranger': b'\0\0' + piece(b'') + b'HTTP/1.1 200 OK\r\n',
    'no_proof': b'\1\0' + piece(b'') + frame(1, bytes(32)),
    'refuses_token': b'\1\0' + piece(b'') + frame(2),
    'refuses': b'\2\5' + piece(REASON),
    'welcomes': b'\2\4' + piece(b'1 of 2 ranks came') + frame(9, b'wait'),
    'all_join': b'\3\0' + piece(b'') + frame(6, peer(0)) +
                frame(6, peer(1)) + frame(7) + frame(10, b'hello'),
    'too_few': b'\3\0' + piece(b'') + frame(6, peer(0)) + frame(7),
    'another_order': b'\3\0' + piece(b'') + frame(6, peer(1)),
    'fails': b'\3\0' + piece(b'') + frame(8, REASON),
}
STAR = {
    'leaves':
        frame(10, b'hello') + frame(9,
                                    struct.pack('<3Q', 7, 5, 6) + b'beat') +
        frame(11),
    'torn': frame(10, b'hello')[:-1],
    'no_such_frame': frame(10, b'hello') + frame(99),
    'handshake_again': frame(3, CLAIM),
    'too_large': struct.pack('<IB', 2**22 + 1, 10),
    'empty': frame(10) + frame(9) + frame(10, b'x') * 20,
}

OF_LINE = '"time":1764547200.25,"rank":3'
RECORD_LINES = {
    'header':
        f'{{"format":"lockstep metrics","version":2,{OF_LINE},"size":5,'
        '"pid":77,"file":2,"first_step":1,"after":0}',
    'run':
        f'{{"run":1764005000123456,{OF_LINE},"host":"a","clock":"b/7",'
        '"job":"seed = 7"}',
    'after':
        f'{{"after":9,{OF_LINE}}}',
    'step':
        f'{{"step":7,{OF_LINE},"train/loss":0.5,"nan":null}}',
    'events':
        f'{{"events":120,{OF_LINE},"why":"slow","loader":"train","epoch":2,'
        '"number":17,"before":1000000,"asked":100,"ended":9000,'
        '"ready_batches":4,"ahead":-500,"ahead_error":60,'
        '"waits":[[100,200]],"averages":[[250,500]],"operations":'
        '[["world","all_reduce","bucket 3",4096,300,400,false],'
        '["g","barrier","",0,300,null,true]],"reads":[[3,-1000,50,41,2]],'
        '"completes":[[1,-500,-100]],"dropped":1,"dropped_steps":2}',
    'times':
        f'{{"times":130,{OF_LINE},"group":"world","operation":"all_reduce",'
        '"dtype":"f32","count":1000,"bucket":3,"issued":[[0,1]],"ended":[],'
        '"took":[[5,2],[9,1]]}',
    'slowest':
        f'{{"slowest":130,{OF_LINE},"loader":"train",'
        '"samples":[[41,0.25,1],[7,0.125,16]]}',
    'later':
        f'{{"later":1,{OF_LINE}}}',
}

LAUNCHERS = {
    'torchrun':
        'RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 '
        'MASTER_ADDR=10.0.0.7 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=run-17 '
        'TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_USE_AGENT_STORE=True',
    'by_hand':
        'RANK=2 WORLD_SIZE=4 MASTER_ADDR=[fd00::7] MASTER_PORT=29500 '
        'LOCKSTEP_PORT=7000',
    'slurm':
        'SLURM_JOB_ID=5000 SLURM_STEP_ID=3 SLURM_NTASKS=999 SLURM_PROCID=4 '
        'SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_NUM_TASKS=7 '
        'SLURM_STEP_TASKS_PER_NODE=4,3 SLURM_STEP_NODELIST=node[003-004]',
    'slurm_lists':
        'SLURM_JOB_ID=5000 SLURM_STEP_ID=3 SLURM_PROCID=4 SLURM_LOCALID=0 '
        'SLURM_NODEID=1 SLURM_STEP_NUM_TASKS=11 '
        'SLURM_STEP_TASKS_PER_NODE=4(x2),3 '
        'SLURM_STEP_NODELIST=rack[1-2]node[003-005,007]-ib,gpu1',
    'open_mpi':
        'OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 '
        'OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4 '
        'PMIX_NAMESPACE=prterun-host-4711@1',
    'pmi':
        'PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 '
        'MASTER_ADDR=trainer-0 MASTER_PORT=29500',
    'mvapich':
        'MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=4 '
        'MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2 '
        'MASTER_ADDR=trainer-0 MASTER_PORT=29500',
    'kubernetes':
        'JOB_COMPLETION_INDEX=3 WORLD_SIZE=4 MASTER_ADDR=train-0.train '
        'MASTER_PORT=29500',
    'contradiction':
        'RANK=2 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=4 LOCAL_RANK=-1 '
        'MASTER_PORT=99999 LOCKSTEP_TOKEN=secret',
}

REPORT = b'1\t' + BLAME.encode() + b'\tUNAVAILABLE: rank 1 is lost\n'
REPORTS = {
    'report': REPORT,
    'several': REPORT + b'no report\n' + REPORT.replace(b'lost"', b'late"'),
    'torn': REPORT + REPORT[:-9],
    'no_text': REPORT.replace(b'UNAVAILABLE: ', b'\x00\x1b\xff\xc3'),
    'unknown': REPORT.replace(b'"lost"', b'"x"').replace(b'"UNA', b'"Y'),
    'no_ranks': REPORT[:REPORT.index(b'{"rank')] + REPORT[REPORT.index(b'],'):],
    'numbers': REPORT.replace(b'1.5', b'1e300').replace(b'"more":0',
                                                       b'"more":99'),
}

# ---- Control messages.


def group(key, parent='', members=(0, 1, 2), backend='shm'):
    return (text(key) + text(key) + text(backend) + text(parent) +
            numbers(*members) + numbers(*members))


def turn(key='world', lane=(-1, -1), which=1):
    return text(key) + number(lane[0]) + number(lane[1]) + number(which)


def position(here, what='', waits=b'', counts=()):
    return (number(here) + number(0) + number(len(what)) + text(what) +
            numbers(*counts) + numbers(*counts) + text('barrier()') +
            (waits or turn('', which=0)) + text(''))


def late(where, what, expired=0):
    return (where + text(what) + number(1) + position(1, what) +
            number(expired) + number(10**9))


def status(code, message, blame=''):
    return number(code) + text(message) + text(blame)


LANES = number(2) + number(-1) + number(-1) + number(7) + number(0) + number(
    1) + number(2)
MARKS = number(2) + number(1) + number(5) + text('barrier()') + number(
    2) + number(6) + text('')
OPEN = b'\1' + group('world')
TO_HUB = {
    'open': OPEN,
    'fail': b'\3' + text('world') + status(10, 'it aborts') + number(0),
    'fail_after': b'\3' + text('world') + status(9, 'a value', BLAME) + number(3),
    'leave': b'\5' + text('world') + LANES,
    'detach': b'\7' + text('world'),
    'late': b'\x08' + late(turn(), 'barrier()'),
    'expired': b'\x08' + late(turn(), 'barrier()', 1),
    'answer': b'\x0a' + turn() + position(0, waits=turn('child')),
    'set': b'\x0c' + text('world') + text('shm/1') + text('a value'),
    'get': b'\x0d' + text('world') + text('shm/1'),
    'marks': b'\x0f' + text('world') + MARKS,
    'closed': b'\x11',
    'hearsay': b'\x13' + text('world') + status(14, 'it was reset'),
    'echoed': b'\x15' + text('world') + number(1),
}
TO_RANK = {
    'opened': b'\2' + text('world'),
    'failed': b'\4' + text('world') + status(14, 'rank 1 is lost', BLAME) +
              number(0),
    'left': b'\6' + text('world') + number(1) + LANES,
    'ask': b'\x09' + turn(),
    'slow': b'\x0b' + text('world') + text('it is slow'),
    'value': b'\x0e' + text('world') + text('shm/1') + text('a value'),
    'lost': b'\x12' + status(14, 'rank 1 is lost', BLAME),
    'echo': b'\x14' + text('world') + number(1),
}


def say(rank, *messages):
    return b''.join(bytes([rank]) + piece(each) for each in messages)


ALL_OPEN = say(0, OPEN) + say(1, OPEN) + say(2, OPEN)
CHILD = b'\1' + group('child', 'world', (0, 1))
TICK, LEAVES, IS_LOST = b'\xf0', b'\xf9', b'\xfd'


def hub():
    to_hub = TO_HUB
    return {
        'each': ALL_OPEN + say(1, *to_hub.values()),
        'differ': say(0, OPEN) + say(1, b'\1' + group('world', backend='tcp')),
        'does_not_come': ALL_OPEN + say(1, to_hub['expired']) +
                         say(0, to_hub['answer']) + TICK + TICK,
        'another_operation': ALL_OPEN + say(1, to_hub['late']) + say(
            2, b'\x08' + late(turn(), 'all_reduce(4 x f32, sum)')),
        'message': ALL_OPEN + say(
            1, b'\x08' + late(turn(lane=(0, 1)), 'recv(4 x f32)', 1)) + TICK,
        'deadlock': ALL_OPEN + say(0, CHILD) + say(1, CHILD) + say(
            0, to_hub['late'], b'\x0a' + turn('child') +
            position(0, waits=turn())) + say(
                1, b'\x08' + late(turn('child'), 'barrier()'),
                to_hub['answer']),
        'child_waits': ALL_OPEN + say(0, CHILD) + say(1, to_hub['leave']),
        'marks_differ': ALL_OPEN + say(1, to_hub['marks']) + say(
            2, to_hub['marks'].replace(number(5), number(4))),
        'store': ALL_OPEN + say(1, to_hub['get']) + say(2, to_hub['set']),
        'hearsay': ALL_OPEN + say(1, to_hub['hearsay'], to_hub['echoed']) +
                   TICK * 6,
        'lost': ALL_OPEN + IS_LOST + LEAVES + say(2, CHILD),
        'aborts': ALL_OPEN + say(2, b'\3' + text('') + status(10, 'x') +
                                 number(0)),
    }


def main():
    write('job_fuzz', jobs())
    write('npy_header_fuzz', golden('npy', NPY, 128))
    write('npy_dataset_fuzz', golden('npy', NPY))
    write('safetensors_header_fuzz', safetensors())
    write(
        'tfrecord_dataset_fuzz', {
            **golden('tfrecord', ['first.tfrecord', 'empty.tfrecord']),
            'records': records(b'', b'a', b'some bytes'),
            'too_long': records(b'a')[:-1],
            'gzip': b'\x1f\x8b\x08' + bytes(17),
            'large': struct.pack('<QI', 2**63, 0) + bytes(8),
        })
    write('token_files_fuzz', tokens())
    write('tar_archive_fuzz', archives())
    write('jpeg_fuzz', fuzz_images.jpegs())
    write('png_fuzz', fuzz_images.pngs())
    write('exif_fuzz', fuzz_images.exifs())
    write(
        'shard_index_fuzz', {
            **golden('tar', ['webdataset.idx', 'gnu_ustar.idx', 'gnu_gnu.idx']),
            **{name: value.encode() for name, value in INDICES.items()}
        })
    write(
        'json_number_fuzz', {
            name: piece(key.encode()) + value.encode()
            for name, (key, value) in JSON_NUMBERS.items()
        })
    write('json_value_fuzz', {
        **{name: value.encode() for name, value in JSON_VALUES.items()},
        'no_utf8': b'["\xc3\xa4\xed\xa0\x80"]',
    })
    write('record_line_fuzz',
          {name: line.encode() for name, line in RECORD_LINES.items()})
    write('state_fuzz', SAMPLER_STATES)
    write(
        'loader_state_fuzz', {
            **{
                name: loader_state(7, state)
                for name, state in SAMPLER_STATES.items()
            }, 'another_seed': loader_state(8, sampler_state(0, 0, 0, 0)),
            'of_a_sampler': sampler_state(0, 0, 0, 0),
            'empty': loader_state(7, b'')
        })
    write('checkpoint_file_fuzz', {
        **CHECKPOINTS,
        **golden('checkpoint', ['model.000000000004'])
    })
    write('checkpoint_text_fuzz', CHECKPOINT_TEXTS)
    write('checkpoint_fuzz', RESTORED)
    write('store_fuzz', STORE)
    write('loader_table_fuzz', FACTS)
    write('failure_report_fuzz', REPORTS)
    write('handshake_fuzz', HANDSHAKE)
    write('hub_door_fuzz', HUB_DOOR)
    write('spoke_join_fuzz', SPOKE_JOIN)
    write('star_fuzz', STAR)
    write(
        'launch_environment_fuzz', {
            name: value.replace(' ', '\n').encode()
            for name, value in LAUNCHERS.items()
        })
    write('messages_fuzz', {**TO_HUB, **TO_RANK})
    write('hub_fuzz', hub())
    write(
        'control_plane_fuzz', {
            **{name: say(0, each) for name, each in TO_RANK.items()},
            'beat': b'\xf0' + piece(b'barrier()') + b'\xf8\xff',
        })


if __name__ == '__main__':
    main()
