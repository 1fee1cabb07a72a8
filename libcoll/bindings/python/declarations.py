"""Reads libcoll's headers: what cffi needs of them, and what they say about each function."""
import os
import re

# In an order in which each needs only those before it.
HEADERS = ["coll_base.h", "coll_types.h", "coll_comm.h", "coll_request.h", "coll_p2p.h", "coll_memory.h",
           "coll_collectives.h"]
COMMENT = re.compile(r"/\*(?:[^*]|\*(?!/))*\*/")
FUNCTION = re.compile(r"(/\*(?:[^*]|\*(?!/))*\*/)\nCOLL_API [\w ]+?\*?(coll_\w+)\(([^;]*)\);")
NUMBER = re.compile(r"^#define (COLL_\w+) +\(?(-?\w+)\)?(?: */\*.*)?$", re.M)


def read(folder):
    """The text of all headers in FOLDER/coll."""
    texts = []
    for name in HEADERS:
        with open(os.path.join(folder, "coll", name), encoding="utf-8") as file:
            texts.append(file.read())
    return "\n".join(texts)


def of_headers(folder):
    """The declarations of all headers, as cffi takes them."""
    text = read(folder)
    numbers = [f"#define {name} {value}" for name, value in NUMBER.findall(text)
               if re.fullmatch(r"-?(\d+|0x[0-9a-fA-F]+)", value)]
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.S)
    text = COMMENT.sub("", text)
    text = re.sub(r"^#(?:.*\\\n)*.*\n", "", text, flags=re.M)
    return "\n".join(numbers) + "\n" + text.replace("COLL_API ", "")


def words_of(comment):
    """The text of a comment, without its stars."""
    lines = [re.sub(r"^ ?\*? ?", "", line).rstrip() for line in comment.strip()[2:-2].split("\n")]
    return "\n".join(lines).strip()


def functions(folder):
    """What the headers say about each function: {name: (parameters, comment)}."""
    return {name: (re.sub(r"\s+", " ", parameters), words_of(comment))
            for comment, name, parameters in FUNCTION.findall(read(folder))}
