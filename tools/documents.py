"""Lists the parts of documents that nothing checks; tools/ci/documents runs it.

The word after the language of a fenced block says how it is checked:

  ```cpp NAME         a file in docs/snippets includes the block NAME, and is compiled
  ```toml NAME        a test in docs/snippets reads the block NAME as a job's text
  ```sh run           tools/ci/documents runs it, in a monorepo made of the documents
  ```sh tree          tools/ci/documents runs it, in the root of this tree
  ```sh LEG           the leg of tools/ci/full with this name runs it
  ```console LEG      the same; commands follow "$ ", and output stands below them
  ```yaml LEG         the leg reads it
  ```starlark FILE    each line is in FILE, in this order (also ```bazelrc), or
                      tools/ci/documents writes it to monorepo/FILE
  ```json             each line, or the whole block, is JSON
  ```text             output or a drawing: nothing to check

It also lists links and anchors that lead nowhere, commands of tools/ in the text that
do not exist, and a README that has become too long.

  documents.py                             prints the list; fails unless it is empty
  documents.py --commands MODE DOCUMENT    prints the blocks of ```sh MODE, each with a
                                           zero byte after it
  documents.py --files FOLDER              writes the files of the monorepo there
"""

import glob
import json
import os
import re
import sys

README_LINES = 200
DOCUMENTS = (['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md'] +
             sorted(glob.glob('docs/*.md')) +
             sorted(glob.glob('examples/**/README.md', recursive=True)))


class Block:
    """A fenced block of a document."""

    def __init__(self, path, line, fence):
        words = fence.split()
        self.place = '%s:%d' % (path, line)
        self.path = path
        self.language = words[0] if words else ''
        self.check = words[1] if len(words) > 1 else ''
        self.lines = []

    @property
    def text(self):
        return '\n'.join(self.lines) + '\n'


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def split(path):
    """Returns the blocks of a document, and its other lines with their numbers."""
    blocks, prose, block, indent = [], [], None, 0
    for number, line in enumerate(read(path).splitlines(), 1):
        fence = re.match(r' *```(.*)', line)
        if fence and block is None:
            block = Block(path, number, fence.group(1))
            indent = line.index('`')
        elif fence:
            blocks.append(block)
            block = None
        elif block is not None:
            block.lines.append(line[indent:])
        else:
            prose.append((number, line))
    return blocks, prose


def snippets():
    """Returns the blocks that docs/snippets uses, as (document, language, name)."""
    build = read('docs/snippets/BUILD')
    users = ''.join(read(path) for path in glob.glob('docs/snippets/*.cc'))
    found = set()
    for rule in re.findall(r'document_snippets\((.*?)\n\)', build, re.S):
        name = re.search(r'name = "(.*?)"', rule).group(1)
        document = re.search(r'document = "//(.*?)"', rule).group(1)
        document = document.replace(':', '/').lstrip('/')
        for language, suffix in (('cpp', 'inc'), ('toml', 'toml')):
            listed = re.search(r'%s = \[(.*?)\]' % language, rule, re.S)
            for block in re.findall('"(.*?)"', listed.group(1) if listed else ''):
                user = 'snippets/%s/%s.%s' % (name, block, suffix)
                if user in users:
                    found.add((document, language, block))
    return found


def commands(block):
    """Returns the commands of a block, each on one line and without its comment."""
    text = block.text.replace('\\\n', ' ')
    if block.language == 'console':
        lines = re.findall(r'^\$ (.*)$', text, re.M)
    else:
        lines = text.splitlines()
    lines = [re.sub(r'\s+#.*', '', line).strip() for line in lines]
    return [line for line in lines if line and not line.startswith('#')]


def legs():
    """Returns the script of each leg of tools/ci/full."""
    found = {}
    for name, command in re.findall(r'^    (\w+)\) (.*) ;;$', read('tools/ci/full'),
                                    re.M):
        script = command.split()[0]
        found[name] = command + '\n'
        if os.path.exists(script):
            found[name] += read(script)
    return found


def differs_from_file(block):
    """Returns why a block of a build file is not in the file that it names."""
    if block.check.startswith('monorepo/'):
        return None  # tools/ci/documents builds it.
    if not os.path.exists(block.check):
        return 'there is no file %r to compare it with' % block.check
    # The examples are three folders below Lockstep.
    lines = [re.sub(r'\s+', ' ', line.replace('third_party/lockstep', '../../..')).strip()
             for line in block.lines]
    rest = iter([re.sub(r'\s+', ' ', line).strip()
                 for line in read(block.check).splitlines()])
    for line in lines:
        if line and line not in rest:
            return '%r is not in %s, or not in this order' % (line, block.check)
    return None


def is_json(text):
    try:
        json.loads(text)
        return True
    except ValueError:
        return False


def unchecked(block, compiled, scripts):
    """Returns why nothing checks a block, or None."""
    language, check = block.language, block.check
    if language == 'text':
        return None
    if language in ('cpp', 'toml'):
        if (block.path, language, check) in compiled:
            return None
        return 'no file in docs/snippets uses the block %r' % check
    if language in ('sh', 'console', 'yaml'):
        if language == 'sh' and check in ('run', 'tree'):
            return None
        if check not in scripts:
            return 'it names no leg of tools/ci/full that runs it, but %r' % check
        # These legs read their commands from the document, or write it.
        if block.path in scripts[check] or check == 'seeds':
            return None
        for command in commands(block):
            if command not in scripts[check]:
                return 'the leg %s does not run %r' % (check, command)
        return None
    if language in ('starlark', 'bazelrc'):
        return differs_from_file(block)
    if language == 'json':
        if is_json(block.text) or all(map(is_json, filter(str.strip, block.lines))):
            return None
        return 'it is no JSON'
    return 'its language is %r; see tools/documents.py' % language


def anchors(path):
    """Returns the anchors that may follow # in a link to a document."""
    found = set()
    for _, line in split(path)[1]:
        heading = re.match(r'#+ (.*)', line)
        if heading:
            title = re.sub(r'[`*]|\]\(.*?\)|\[', '', heading.group(1)).lower()
            slug = re.sub(r'[^\w\- ]', '', title).replace(' ', '-')
            while slug in found:
                slug += '-1'
            found.add(slug)
    return found


def wrong_in_prose(path, prose):
    """Yields (place, mistake) for each mistake outside of blocks."""
    text = '\n'.join(line for _, line in prose)
    numbers = [number for number, _ in prose]
    for link in re.finditer(r'\]\(([^)\s]+)\)', text):
        place = '%s:%d' % (path, numbers[text.count('\n', 0, link.start())])
        target, _, anchor = link.group(1).partition('#')
        if '://' in target:
            continue
        file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(file):
            yield place, 'the link leads to %s, which is not there' % file
        elif anchor and file.endswith('.md') and anchor not in anchors(file):
            yield place, '%s has no heading #%s' % (file, anchor)
    for code in re.finditer(r'`(tools/[a-z_0-9/.]+)[^`]*`', text):
        place = '%s:%d' % (path, numbers[text.count('\n', 0, code.start())])
        if not glob.glob(code.group(1).rstrip('/.')):
            yield place, 'there is no %s' % code.group(1)


def list_unchecked():
    """Prints what must be mended, and returns how many things these are."""
    compiled, scripts, found = snippets(), legs(), []
    for path in DOCUMENTS:
        blocks, prose = split(path)
        for block in blocks:
            reason = unchecked(block, compiled, scripts)
            if reason:
                found.append((block.place, reason))
        found.extend(wrong_in_prose(path, prose))
    length = len(read('README.md').splitlines())
    if length > README_LINES:
        found.append(('README.md', 'it has %d lines, and at most %d are readable' %
                      (length, README_LINES)))
    for place, reason in found:
        print('%s: %s' % (place, reason))
    count = sum(len(split(path)[0]) for path in DOCUMENTS)
    print('%d blocks in %d documents; to be mended: %d' %
          (count, len(DOCUMENTS), len(found)))
    return len(found)


def print_commands(mode, path):
    for block in split(path)[0]:
        if block.language == 'sh' and block.check == mode:
            print(block.text, end='\0')


def write_files(folder):
    """Writes the monorepo of README and docs/depending.md, and its trainer."""
    for path in DOCUMENTS:
        for block in split(path)[0]:
            name = None
            if block.check.startswith('monorepo/'):
                name = block.check[len('monorepo/'):]
            elif path == 'README.md' and block.check == 'first':
                name = {'cpp': 'train.cc', 'toml': 'train.toml'}[block.language]
            if name:
                os.makedirs(os.path.join(folder, os.path.dirname(name)), exist_ok=True)
                with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
                    file.write(block.text)


def main(arguments):
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
    if not arguments:
        return 1 if list_unchecked() else 0
    if arguments[0] == '--commands' and len(arguments) == 3:
        print_commands(*arguments[1:])
    elif arguments[0] == '--files' and len(arguments) == 2:
        write_files(arguments[1])
    else:
        sys.exit(__doc__)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
