"""HTML as text for a model."""

import pytest
from hypothesis import given, strategies as st

from mcp_django.integrations.html_text import html_to_text, split_html

TAGS = st.sampled_from(
    [
        "p",
        "li",
        "ul",
        "ol",
        "table",
        "tr",
        "td",
        "th",
        "a href=/x",
        "div hidden",
        "pre",
        "h2",
        "head",
        "br",
    ]
)
PIECES = st.one_of(
    TAGS.map("<{}>".format),
    TAGS.map("</{}>".format),
    st.sampled_from(["text", "<", "&amp;", "\0", "<script>", "</script>", "<title>", "<!--"]),
)
FORM = (
    "<form><input type=hidden name=csrfmiddlewaretoken value=TOKEN><label>Name</label>"
    "<input value=x><select><option>o</select><button>Go</button></form>"
)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("", ""),
        ("plain & simple", "plain & simple"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("<h1>A</h1>x<h3> b  c </h3>", "# A\n\nx\n\n### b c"),
        ("<title>T</title><p>x", "# T\n\nx"),
        ("<head><title>T</title></head><body><h1>H</h1>x", "# H\n\nx"),
        ("a<br>b", "a\nb"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<ul><li>a<ul><li>b</li></ul></li><li>c</ul>d", "- a\n  - b\n- c\n\nd"),
        ("<ol><li>a<li>b</ol><ul><li>c</ul>", "1. a\n2. b\n\n- c"),
        ("<a href='/x?a=1&amp;b=2'>go</a>", "[go](/x?a=1&b=2)"),
        ("<a href='javascript:alert(1)'>go</a> <a href='#top'>up</a> <a>bare</a>", "go up bare"),
        ("<a href='http://[bad'>go</a>", "go"),
        (
            "<table><tr><th>A<th>B<tr><td>1|2<td>x<br>y</table>",
            "| A | B |\n| --- | --- |\n| 1\\|2 | x y |",
        ),
        ("<table><caption>C</caption><tr><td>1</table>", "C\n\n| 1 |\n| --- |"),
        ("<pre>  a\n   b</pre>", "```\n  a\n   b\n```"),
        ("<img src=x alt='A cat'> <img src=y>", "A cat"),
        ("<script>1</script><style>2</style><template>3</template><noscript>4</noscript>5", "5"),
        ("<div hidden>1<p>2</div>3", "3"),
        ("<p hidden>1<p>2", "2"),
        ("<p style='DISPLAY : none'>1</p><span aria-hidden=true>2</span>3", "3"),
        ("<svg><title>icon</title></svg>x", "x"),
        (FORM, "Name"),
        ("</div></p>x</ul>", "x"),
        ("<p>unclosed <b>bold <i>both", "unclosed bold both"),
        ("&lt;script&gt;", "<script>"),
        ("a<![CDATA[ b ]]>c", "ac"),
        ("a<!doctype x><?php echo 1 ?>b</>c</ x>d", "abcd"),
        ("1 < 2 <3> a<", "1 < 2 <3> a<"),
        ("a<!-->b<!--->c<!-- <p>d --!>e<!-- f", "abce"),
        ("<p title='>'>a<p title=\"'>\">b<p x=y/>c", "a\n\nb\n\nc"),
        ("a<p title='b>c", "a"),
        ("<script>'</scripty>'</script >a", "a"),
        ("<textarea><b>&amp;</textarea>x", "<b>&\n\nx"),
        ("<xmp><p>raw&amp;</xmp>", "<p>raw&amp;"),
        ("<svg/>a<svg><p>b</svg>c", "ac"),
        ("&#99999999999999999999999; &#x110000; &#xd800; &#0;", "\ufffd \ufffd \ufffd \ufffd"),
        # Models do not get text that a browser does not show.
        ("<p style='display:none' style=''>1</p>2", "2"),
        ("<p style='color:red;display:/**/none !important'>1</p>2", "2"),
        ("<p style='display\n:\tnone'>1</p>2", "2"),
        ("<p style=opacity:0>1</p><p style='font-size: 0px'>2</p>3", "3"),
        ("<p style=opacity:0.5>1</p><p style='font-size: 10px'>2</p>", "1\n\n2"),
        ("<p aria-hidden=' TRUE '>1</p><p hidden=until-found>2</p>3", "3"),
        ("<noembed>1</noembed><noframes>2</noframes>3", "3"),
        ("a\U000e0041\U000e007fb<img alt='c\U000e0042'>", "ab c"),
    ],
)
def test_a_page_becomes_text(html, expected):
    assert html_to_text(html) == expected


@given(st.lists(PIECES, max_size=30).map("".join))
def test_no_page_is_too_broken(html):
    text = html_to_text(html)
    assert "csrf" not in text
    assert "\0" not in text


@pytest.mark.parametrize(
    "piece",
    ["<div>", "<b></i>", "<table><tr><td>", "<ul><li>", "<a href=x>", "<p>x", "</", "<", "<a b"],
)
def test_a_page_that_is_deep_and_long_is_read(piece):
    # Five times as deep as Python's own stack may be.
    assert html_to_text(piece * 5_000 + "> the end").endswith("the end")


@pytest.mark.parametrize(
    "piece", ["<!--", "<a ", "<a href='", "<textarea>", "<![", "<?", "&#", "</a"]
)
def test_a_page_that_never_ends_what_it_begins_is_looked_at_once(piece):
    # A parser that goes back for each of them would take hours.
    looked_at = sum(1 for _ in split_html(piece * 300_000))
    assert looked_at <= 2
