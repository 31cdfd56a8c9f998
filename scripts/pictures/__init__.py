"""What `scripts/draw_pictures.py` draws into docs/pictures: see there."""
