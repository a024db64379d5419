from steadycast.media.figure import draw, rate_and_quality
from steadycast.media.ladder import encode_ladder
from steadycast.media.synthetic import Synthetic


def test_the_figure_shows_rate_and_quality_of_every_rung_with_units(tmp_path):
    ladder = encode_ladder(Synthetic(52), size="176x144", qs=[2, 4, 8, 16, 31])
    rungs = rate_and_quality(ladder, most_groups=3)
    assert [rung.q for rung in rungs] == [2, 4, 8, 16, 31]
    assert [rung.groups for rung in rungs] == [3] * 5
    quality = [rung.psnr_y_db for rung in rungs]
    assert quality == sorted(quality, reverse=True)
    assert 40 < quality[0] < 55
    assert [rung.ssim for rung in rungs] == sorted((rung.ssim for rung in rungs), reverse=True)
    for name, head in (("figure.svg", b"<?xml"), ("figure.png", b"\x89PNG")):
        figure = draw(rungs, "synthetic clip", tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(head)
    labels = [text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())]
    assert {"quantizer", "mean rate (kb/s)", "PSNR of luma (dB)", "SSIM of luma (dashed)"} <= set(labels)
